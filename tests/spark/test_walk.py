"""The walk of a micro-batch in ARCHITECTURE.md as it really goes: every function that it names is called."""

import subprocess
import sys

from tests.simulation.test_walks import missing_hops
from tests.spark.pyspark_version import needs_limits


@needs_limits
def test_every_hop_of_a_micro_batch_is_called() -> None:
    """In a process of its own: calls in a client thread that other tests have started are not seen."""
    program = (
        "from tests.spark.call_trace import trace_micro_batch; print(*{name for _, name in trace_micro_batch().calls})"
    )
    traced = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert traced.returncode == 0, traced.stderr
    assert missing_hops("7. Spark micro-batch", set(traced.stdout.split())) == []
