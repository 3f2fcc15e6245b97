"""A Spark session with the settings that matter, where the user set nothing."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.accelerators import switches
from tidelog.spark.accelerators.local_files import prepare_local_files
from tidelog.spark.accelerators.python_launcher import python_command
from tidelog.spark.accelerators.switches import Accelerator, is_on
from tidelog.spark.java import choose_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"

SETTINGS: Mapping[str, str] = {
    # Python workers over TCP wait for delayed acknowledgements: 40 ms in every micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # Hadoop otherwise takes any class of that scheme on the class path, Hive's among them, and RocksDB needs this one.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    # Arrow's timestamps carry the session's time zone; table formats want UTC.
    "spark.sql.session.timeZone": "UTC",
    # 10,000 rows per Arrow batch keep writers busy with overhead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}

LOCAL_FILES_SETTINGS: Mapping[str, str] = {
    # The one that asks the cached file system, which `tidelog.spark.accelerators.local_files` replaces.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

LOOPBACK_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

LOCAL_SETTINGS: Mapping[str, str] = {
    # 200 by default, each with a state store of its own: far too many for one machine.
    "spark.sql.shuffle.partitions": "8",
}


def session(
    app_name: str = "tidelog", master: str | None = None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """A new session, or the running one with `settings` applied as Spark does it.

    Java need not be installed: see `tidelog.spark.java`. Settings given here, in `spark-defaults.conf` or in
    PYSPARK_SUBMIT_ARGS stay as they are.
    """
    from pyspark.sql import SparkSession

    given = dict(settings or {})
    builder = SparkSession.builder.appName(app_name)
    is_new = SparkSession.getActiveSession() is None
    if is_new:
        master, by_user = prepare_environment(master, given)
        builder = builder.master(master)
        given = missing_settings(master, by_user) | {switches.EXECUTOR_SETTING: os.environ[switches.VARIABLE]} | given
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if is_new and is_on(Accelerator.LOCAL_FILES):
        prepare_local_files(spark)
    return spark


def make_source_known(spark: "SparkSession") -> None:
    """Spark looks for data sources once in a session, in a Python process: if that dies, it never finds any."""
    from tidelog.spark.data_source import DefaultSource

    sources: Any = spark._jsparkSession.sessionState().dataSourceManager()
    if not sources.dataSourceExists(DefaultSource.name()):
        spark.dataSource.register(DefaultSource)


def missing_settings(master: str, by_user: Mapping[str, str]) -> dict[str, str]:
    wanted = dict(SETTINGS)
    if is_on(Accelerator.LOCAL_FILES):
        wanted |= LOCAL_FILES_SETTINGS
    if is_local(master):
        wanted |= LOCAL_SETTINGS
    if is_on_loopback(master):
        wanted |= LOOPBACK_SETTINGS
    return {name: value for name, value in wanted.items() if name not in by_user}


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def is_on_loopback(master: str) -> bool:
    """Nothing beyond this machine needs to reach the driver: Spark runs in one process, or its master is here."""
    if is_local(master) or master.startswith("local-cluster["):
        return True
    scheme, _, addresses = master.partition("://")
    hosts = [address.rpartition(":")[0] for address in addresses.split(",")]
    return scheme == "spark" and all(host == "localhost" or host.startswith("127.") for host in hosts)


def prepare_environment(master: str | None, given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What must stand in the environment before the JVM starts; the master, and all settings of the user's.

    Spark runs the Python of data sources, on driver and executors, with the one that PYSPARK_DRIVER_PYTHON names, and
    everything else on executors with PYSPARK_PYTHON; `spark.pyspark.python` is for spark-submit alone.
    """
    by_user = settings_outside(os.environ) | dict(given)
    master = master or by_user.get("spark.master") or os.environ.get("MASTER") or DEFAULT_MASTER
    switches.pass_on(by_user, os.environ)
    choose_java()
    own_python = python_command() if is_local(master) and is_on(Accelerator.PYTHON_LAUNCHER) else sys.executable
    python = os.environ.setdefault("PYSPARK_PYTHON", by_user.get("spark.pyspark.python") or own_python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", own_python if is_on_loopback(master) else python)
    if is_on_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return master, by_user


def settings_outside(environment: Mapping[str, str]) -> dict[str, str]:
    """What the user has set for every program: in spark-defaults.conf and in PYSPARK_SUBMIT_ARGS."""
    settings: dict[str, str] = {}
    home = environment.get("SPARK_HOME")
    directory = environment.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    if directory is not None:
        defaults = Path(directory, "spark-defaults.conf")
        if defaults.is_file():
            settings |= parse_defaults(defaults.read_text().splitlines())
    return settings | parse_submit_arguments(environment.get("PYSPARK_SUBMIT_ARGS", ""))


def parse_defaults(lines: Iterable[str]) -> dict[str, str]:
    """Java's properties as people write them there: a name and a value, with blanks or `=` between."""
    settings = {}
    for line in lines:
        line = line.strip()
        if line and not line.startswith(("#", "!")):
            name, *value = line.replace("=", " ", 1).split(maxsplit=1)
            settings[name] = value[0] if value else ""
    return settings


def parse_submit_arguments(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    words = iter(shlex.split(text))
    for word in words:
        option, _, value = word.partition("=")
        if option in ("--conf", "-c"):
            name, _, value = (value or next(words, "")).partition("=")
            settings[name] = value
        elif option == "--master":
            settings["spark.master"] = value or next(words, "")
    return settings
