"""Switches of the accelerators: one setting each, and the versions of PySpark they were tested with.

A session made by `tidelog.spark.session` reads the settings and passes the outcome on in an environment variable, which
all Python processes of the session inherit. In other sessions only the user's own environment variable counts.
"""

import logging
import os
from collections.abc import Mapping, MutableMapping
from enum import StrEnum

log = logging.getLogger(__name__)

TESTED_PYSPARK = ("4.2", "4.3")
PREFIX = "spark.tidelog.accelerate"
"""Alone it switches all of them; followed by a name, that one."""
USERS_VARIABLE = "TIDELOG_ACCELERATE"
"""Names of the accelerators to use where no setting says otherwise, separated by commas; empty: none."""
VARIABLE = "TIDELOG_ACCELERATORS_ON"
"""The same, as a session passes it on to its processes."""
EXECUTOR_SETTING = f"spark.executorEnv.{VARIABLE}"


class Accelerator(StrEnum):
    LOCAL_FILES = "local_files"
    """Local files without checksums and without a process of `chmod` each (`local_files.py`)."""
    DRIVER_READS = "driver_reads"
    """Small micro-batches read by the driver's Python process (`driver_reads.py`)."""
    PYTHON_LAUNCHER = "python_launcher"
    """PySpark imported as pip installed it, compiled (`python_launcher.py`)."""
    SHARED_CLASSES = "shared_classes"
    """Java's and Spark's classes mapped from an archive (`shared_classes.py`)."""
    ERROR_TEXTS = "error_texts"
    """Errors for users without the stack of a Python process (`error_texts.py`)."""
    WORKER_MEMORY = "worker_memory"
    """Garbage collection that leaves out what Python workers have loaded (`worker_memory.py`)."""


class WrongSwitch(ValueError):
    """A setting of an accelerator that cannot be meant; the message says what can."""


def is_on(accelerator: Accelerator) -> bool:
    """Whether this process uses it."""
    passed_on = os.environ.get(VARIABLE)
    return accelerator in (_on_by_default(os.environ) if passed_on is None else passed_on.split(","))


def _on_by_default(environment: Mapping[str, str]) -> set[str]:
    named = environment.get(USERS_VARIABLE)
    if named is not None:
        return set(named.split(","))
    return {*Accelerator} if is_tested(pyspark_version()) else set()


def is_tested(version: str) -> bool:
    return ".".join(version.split(".")[:2]) in TESTED_PYSPARK


def pyspark_version() -> str:
    from pyspark.version import __version__

    return __version__


def pass_on(settings: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Switch the accelerators of this process, and of all that it starts, as settings, environment and version say."""
    on = switched_on(settings, _on_by_default(environment))
    version = pyspark_version()
    if not on and not is_tested(version) and USERS_VARIABLE not in environment and PREFIX not in settings:
        log.warning(
            "Spark runs without Tidelog's accelerators: PySpark %s is none of the versions they were tested with (%s);"
            " %s=true turns them on",
            version,
            ", ".join(TESTED_PYSPARK),
            PREFIX,
        )
    environment[VARIABLE] = ",".join(each for each in Accelerator if each in on)


def switched_on(settings: Mapping[str, str], before: set[str]) -> set[str]:
    """Those that are on, given those that are on without the settings. Raises WrongSwitch."""
    on = set(before)
    if PREFIX in settings:
        on = set(Accelerator) if _truth(PREFIX, settings[PREFIX]) else set()
    for name, value in settings.items():
        if not name.startswith(f"{PREFIX}."):
            continue
        accelerator = name.removeprefix(f"{PREFIX}.")
        if accelerator not in set(Accelerator):
            raise WrongSwitch(f"{name} names no accelerator; there are {', '.join(Accelerator)}")
        on = on | {accelerator} if _truth(name, value) else on - {accelerator}
    return on


def _truth(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise WrongSwitch(f"{name} must be true or false, not {value!r}")
    return value.lower() == "true"
