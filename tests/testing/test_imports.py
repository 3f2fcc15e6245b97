"""Import of the test kit: it leaves little work to the garbage collector."""

import subprocess
import sys

COUNTS = """
import gc
{before}
from tidelog.testing import Cluster
young = len(gc.get_objects(0)) + len(gc.get_objects(1))
print(gc.isenabled(), gc.get_freeze_count() > 0, young < len(gc.get_objects()) // 4)
"""


def _counts(before: str = "") -> list[str]:
    command = [sys.executable, "-c", COUNTS.format(before=before)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_objects_of_the_import_count_as_old() -> None:
    """Otherwise the first collections of a test would look at all of them: a quarter of the time of a first cluster."""
    assert _counts() == ["True", "False", "True"]


def test_frozen_objects_stay_frozen() -> None:
    assert _counts("gc.freeze()")[:2] == ["True", "True"]


def test_a_collector_that_is_off_stays_off() -> None:
    assert _counts("gc.disable()") == ["False", "False", "True"]
