"""The pytest plugin in runs of its own: fixture, marker, ini option, and what it costs those who do not use it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGIN = "tidelog.testing.pytest_plugin"
ROOT = Path(__file__).parent.parent.parent

TESTS = """
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

def cluster(kafka):
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})

def create(kafka, topic):
    admin = cluster(kafka)
    admin.create_topics([NewTopic(topic)])[topic].result(60)

def topics(kafka):
    return {name: len(found.partitions) for name, found in cluster(kafka).list_topics(timeout=60).topics.items()}

seen = []

def test_default_size(kafka):
    assert kafka.brokers == 2
    create(kafka, "tides")
    seen.append(kafka)

def test_every_test_begins_empty(kafka):
    assert kafka is seen[0]
    assert topics(kafka) == {}

@pytest.mark.kafka(brokers=1, settings={"num.partitions": 5})
class TestMarked:
    def test_marker_of_the_class(self, kafka):
        create(kafka, "tides")
        assert kafka.brokers == 1
        assert topics(kafka) == {"tides": 5}

    @pytest.mark.kafka(brokers=3)
    def test_marker_of_the_test(self, kafka):
        create(kafka, "tides")
        assert kafka.running == [1, 2, 3]
        assert topics(kafka) == {"tides": 5}

def test_a_broker_is_killed(kafka):
    kafka.kill(1)

def test_the_next_test_has_all_brokers(kafka):
    assert kafka.running == [1, 2]

@pytest.mark.kafka(brokers=1, process=True)
def test_in_a_process_of_its_own(kafka):
    create(kafka, "tides")
    assert topics(kafka) == {"tides": 4}
"""

SHARED = """
import pytest

pytestmark = pytest.mark.kafka(brokers=1)
seen = []

def test_first(kafka_module, kafka_session):
    kafka_module.on("Produce").drop()
    seen.append(kafka_module)
    assert (kafka_module.brokers, kafka_session.brokers) == (1, 2)
    assert kafka_module is not kafka_session

def test_second_sees_the_same_cluster(kafka_module):
    assert kafka_module is seen[0]

class TestOne:
    def test_it(self, kafka_class):
        seen.append(kafka_class)

class TestOther:
    def test_it(self, kafka_class):
        assert kafka_class is not seen[1]
"""

WRONG = """
import pytest

@pytest.mark.kafka(broker=3)
def test_wrong_name(kafka):
    pass

@pytest.mark.kafka(brokers="many")
def test_wrong_number(kafka):
    pass
"""


def _run(
    directory: Path, tests: str, ini: str = "", loading: tuple[str, ...] = ("-p", PLUGIN), **environment: str
) -> "subprocess.CompletedProcess[str]":
    (directory / "test_it.py").write_text(tests)
    (directory / "pytest.ini").write_text(f"[pytest]\naddopts = --strict-markers -p no:cacheprovider\n{ini}\n")
    command = [sys.executable, "-m", "pytest", *loading, "-p", "no:xdist", "-W", "error", str(directory)]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.clients
def test_fixture_marker_and_ini_option(tmp_path: Path) -> None:
    run = _run(tmp_path, TESTS, "tidelog_brokers = 2\ntidelog_settings =\n    num.partitions=4")
    assert "7 passed" in run.stdout, run.stdout


@pytest.mark.clients
def test_clusters_that_several_tests_share(tmp_path: Path) -> None:
    run = _run(tmp_path, SHARED, "tidelog_brokers = 2")
    assert "4 passed" in run.stdout, run.stdout


def test_a_wrong_marker_gets_one_sentence(tmp_path: Path) -> None:
    run = _run(tmp_path, WRONG)
    assert "@pytest.mark.kafka takes brokers=, settings= and process= only" in run.stdout
    assert "the number of brokers must be 1 or more, not 'many'" in run.stdout
    assert "2 errors" in run.stdout


def test_a_run_without_the_fixture_does_not_import_the_broker() -> None:
    code = f"import sys, {PLUGIN}; print([name for name in sys.modules if name.startswith('tidelog')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(["tidelog", "tidelog.testing", PLUGIN])


def test_importing_the_package_needs_no_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; from tidelog.testing import Cluster; print(Cluster.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "Cluster"


def test_an_installation_loads_the_plugin_by_itself(tmp_path: Path) -> None:
    """From the entry points in pyproject.toml, as installers write them down."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [name for name in project["dependencies"] if name.startswith("pytest")]
    installed = tmp_path / "site" / "tidelog-0.1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tidelog\nVersion: 0.1.0\n")
    lines = [f"{name} = {module}\n" for name, module in project["entry-points"]["pytest11"].items()]
    (installed / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    tests = "def test_it(kafka):\n    assert kafka.running == [1]\n"
    run = _run(tmp_path, tests, loading=(), PYTHONPATH=str(installed.parent))
    assert "1 passed" in run.stdout, run.stdout + run.stderr
