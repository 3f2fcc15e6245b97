"""Kernels that were compiled before are loaded without what numba compiles with."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

DECODE = """
import json, sys
from tidelog.spark.driver_reads import decode_a_record
from tidelog.spark.records import kernels

rows = [batch.to_pylist() for batch in decode_a_record(("key", "value", "headers"))]
scan, gather = ({"loaded": sum(of.stats.cache_hits.values()), "compiled": sum(of.stats.cache_misses.values())}
                for of in (kernels.scan, kernels.gather))
print(json.dumps({"rows": repr(rows), "scan": scan, "gather": gather, "compiler": "numba.np.linalg" in sys.modules}))
"""

ROWS = repr([[{"key": b"key", "value": b"value", "headers": [{"key": "header", "value": b"value"}]}]])


class Decoded(NamedTuple):
    rows: str
    scan: dict[str, int]
    gather: dict[str, int]
    compiler: bool
    """Whether numba has loaded all functions that it knows."""


def decode_in_a_new_process(cache: Path) -> Decoded:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", DECODE], env=environment, stdout=subprocess.PIPE, check=True, timeout=120
    )
    return Decoded(**json.loads(done.stdout))


def test_kernels_are_compiled_once_and_then_loaded_alone(tmp_path: Path) -> None:
    first, second = decode_in_a_new_process(tmp_path), decode_in_a_new_process(tmp_path)
    assert first.rows == second.rows == ROWS
    assert first.compiler
    assert first.scan["compiled"] == 1
    assert not second.compiler
    assert second.scan == {"loaded": 1, "compiled": 0}

    for index in tmp_path.rglob("kernels.gather-*.nbi"):
        index.unlink()
    third = decode_in_a_new_process(tmp_path)
    assert third.rows == ROWS
    assert third.scan["compiled"] == 0
    assert third.gather["compiled"] >= 1
