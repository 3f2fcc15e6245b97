"""The tour waits longer on a busy machine, and never forever."""

from demo.time_limits import time_limit_s


def test_idle_machine_gets_the_limit_itself() -> None:
    assert time_limit_s(180.0, load=0.5, cores=2) == 180.0


def test_busy_machine_gets_more_time() -> None:
    assert time_limit_s(180.0, load=8.0, cores=2) == 720.0


def test_time_is_never_endless() -> None:
    assert time_limit_s(180.0, load=1000.0, cores=2) == 1800.0
