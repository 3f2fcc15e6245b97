"""The switches of the accelerators, and Spark without any of them."""

import os
import subprocess
import sys

import pytest

from tests.spark.pyspark_version import LEAKS
from tidelog.spark.accelerators import switches
from tidelog.spark.accelerators.switches import Accelerator, WrongSwitch, apply_switches, is_on, is_tested, switched_on

ALL = {*Accelerator}


def test_one_setting_switches_all_and_one_each() -> None:
    assert switched_on({}, ALL) == ALL
    assert switched_on({"spark.tidelog.accelerate": "false"}, ALL) == set()
    assert switched_on({"spark.tidelog.accelerate.local_files": "FALSE"}, ALL) == ALL - {"local_files"}
    only_one = {"spark.tidelog.accelerate.local_files": "true", "spark.tidelog.accelerate": "false"}
    assert switched_on(only_one, ALL) == {"local_files"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"spark.tidelog.accelerate": "yes"}, "spark.tidelog.accelerate must be true or false, not 'yes'"),
        (
            {"spark.tidelog.accelerate.files": "true"},
            "is not an accelerator; accelerators are local_files, driver_reads",
        ),
    ],
)
def test_a_wrong_switch_is_reported(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(WrongSwitch, match=sentence):
        switched_on(settings, ALL)


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.1.4", True), ("4.0.5", False), ("4.2.1", True), ("4.3.0.dev1", True), ("4.4.0", False), ("5", False)],
)
def test_versions_that_were_tested_are_known(version: str, expected: bool) -> None:
    assert is_tested(version) is expected


def test_an_unknown_version_switches_all_off_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(switches, "pyspark_version", lambda: "4.9.0")
    environment: dict[str, str] = {}
    apply_switches({}, environment)
    assert environment == {switches.VARIABLE: ""}
    assert "PySpark 4.9.0 is not one of the tested versions (4.1, 4.2, 4.3)" in caplog.text
    apply_switches({"spark.tidelog.accelerate.error_texts": "true"}, environment)
    assert environment == {switches.VARIABLE: "error_texts"}


def test_a_session_passes_on_what_its_own_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what the session before it in this process had."""
    environment: dict[str, str] = {}
    apply_switches({"spark.tidelog.accelerate": "false"}, environment)
    apply_switches({}, environment)
    assert environment[switches.VARIABLE].split(",") == list(Accelerator)
    monkeypatch.setenv(switches.VARIABLE, "driver_reads,local_files")
    assert [each for each in Accelerator if is_on(each)] == [Accelerator.LOCAL_FILES, Accelerator.DRIVER_READS]


SHORT_SET = (
    "tests/spark/test_rocksdb_state.py::test_two_streams_are_joined",
    "tests/spark/test_first_steps.py",
    "tests/spark/test_exactly_once_queries.py",
)


@pytest.mark.spark
def test_everything_works_without_accelerators() -> None:
    """A session of its own, in which none is on; a plain PySpark session reads the same variable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "JAVA_HOME"))}
    for name in (switches.VARIABLE, "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        environment.pop(name, None)
    environment[switches.USER_VARIABLE] = ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", *LEAKS, *SHORT_SET]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=560, check=False)
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
