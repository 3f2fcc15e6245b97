"""The version of PySpark that tests run with: 4.1 neither limits micro-batches nor reports the latest offsets."""

from typing import Final

import pytest

from tidelog.spark.accelerators.switches import pyspark_version

HAS_LIMITS: Final = not pyspark_version().startswith("4.1.")

needs_limits = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 cannot limit a micro-batch")
needs_latest_offsets = pytest.mark.skipif(not HAS_LIMITS, reason="PySpark 4.1 does not report the latest offsets")
needs_several_micro_batches = pytest.mark.skipif(
    not HAS_LIMITS, reason="with PySpark 4.1 --once is one micro-batch: windows are written with the next records"
)

LEAKS: Final = ("-W", "ignore:unclosed <socket.socket fd:ResourceWarning")
"""PySpark 4.1 leaves the sockets through which it collects rows to the garbage collector."""


def limit(rows: int) -> dict[str, str]:
    """Of micro-batches, for tests that pass without it."""
    return {"maxOffsetsPerTrigger": str(rows)} if HAS_LIMITS else {}
