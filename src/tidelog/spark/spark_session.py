"""Spark session with settings that suit Tidelog, where the user has set nothing."""

import logging
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
from tidelog.spark.accelerators.warm_python import switch_fork_server
from tidelog.spark.java import choose_java
from tidelog.spark.spark_master import reject_wrong_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER = "local[*]"

SETTINGS: Mapping[str, str] = {
    # Python workers over TCP suffer from delayed acknowledgements: 40 ms in every micro-batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # Otherwise Hadoop takes any class for this scheme on the class path, such as Hive's; RocksDB needs this one.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    # Arrow timestamps have the session's time zone; table formats need UTC.
    "spark.sql.session.timeZone": "UTC",
    # With 10,000 rows per Arrow batch, writers spend most of their time on overhead.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Otherwise filters on partition, offset and timestamp are evaluated after all records were read.
    "spark.sql.python.filterPushdown.enabled": "true",
}

LOCAL_FILES_SETTINGS: Mapping[str, str] = {
    # Uses the cached file system, which `tidelog.spark.accelerators.local_files` replaces.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

NOISY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

LOOPBACK_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

LOCAL_SETTINGS: Mapping[str, str] = {
    # The default is 200, each with its own state store: too many for one machine.
    "spark.sql.shuffle.partitions": "8",
}


def session(
    app_name: str = "tidelog", master: str | None = None, settings: Mapping[str, str] | None = None
) -> "SparkSession":
    """A new session, or the running one with `settings` applied by Spark.

    Java need not be installed: see `tidelog.spark.java`. Settings given here, in `spark-defaults.conf` or in
    PYSPARK_SUBMIT_ARGS take precedence.
    """
    from pyspark.sql import SparkSession

    silence_query_loggers()
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


def silence_query_loggers() -> None:
    """PySpark prints every error of a query with its Java stack, as JSON, before it raises the error."""
    for name in NOISY_LOGGERS:
        logging.getLogger(name).disabled = True


def register_source(spark: "SparkSession") -> None:
    """Spark searches for data sources once per session, in a Python process; if that crashes, it never finds any."""
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
    if not has_own_logging(by_user, os.environ):
        wanted[JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    return {name: value for name, value in wanted.items() if name not in by_user}


def has_own_logging(by_user: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """True if the user configures the logging of Java."""
    options = (by_user.get("spark.driver.extraJavaOptions", ""), environment.get("SPARK_SUBMIT_OPTS", ""))
    return any("log4j" in text for text in options) or bool(environment.get("SPARK_CONF_DIR"))


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def is_on_loopback(master: str) -> bool:
    """True if only this machine needs to reach the driver: Spark runs in one process, or its master is here."""
    if is_local(master) or master.startswith("local-cluster["):
        return True
    scheme, _, addresses = master.partition("://")
    hosts = [address.rpartition(":")[0] for address in addresses.split(",")]
    return scheme == "spark" and all(host == "localhost" or host.startswith("127.") for host in hosts)


def prepare_environment(master: str | None, given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Sets environment variables that are needed before the JVM starts; returns the master and the user's settings.

    Spark runs the Python of data sources, on driver and executors, with PYSPARK_DRIVER_PYTHON, and all other Python on
    executors with PYSPARK_PYTHON; `spark.pyspark.python` is only for spark-submit.
    """
    by_user = settings_outside(os.environ) | dict(given)
    master = master or by_user.get("spark.master") or os.environ.get("MASTER") or DEFAULT_MASTER
    reject_wrong_master(master)
    switches.apply_switches(by_user, os.environ)
    choose_java()
    own_python = python_command() if is_on_loopback(master) and is_on(Accelerator.PYTHON_LAUNCHER) else sys.executable
    python = os.environ.setdefault("PYSPARK_PYTHON", by_user.get("spark.pyspark.python") or own_python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", own_python if is_on_loopback(master) else python)
    is_launched = os.environ["PYSPARK_DRIVER_PYTHON"] == own_python != sys.executable
    switch_fork_server(os.environ, is_on=is_launched and is_on(Accelerator.WARM_PYTHON))
    if is_on_loopback(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return master, by_user


def settings_outside(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of the user for all programs: spark-defaults.conf and PYSPARK_SUBMIT_ARGS."""
    settings: dict[str, str] = {}
    home = environment.get("SPARK_HOME")
    directory = environment.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    if directory is not None:
        defaults = Path(directory, "spark-defaults.conf")
        if defaults.is_file():
            settings |= parse_defaults(defaults.read_text().splitlines())
    return settings | parse_submit_arguments(environment.get("PYSPARK_SUBMIT_ARGS", ""))


def parse_defaults(lines: Iterable[str]) -> dict[str, str]:
    """Properties as in spark-defaults.conf: name and value, separated by blanks or `=`."""
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
