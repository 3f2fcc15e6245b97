"""Switches of the accelerators: one setting each, and the versions of PySpark they were tested with.

A session made by `tidelog.spark.session` reads the settings and passes the result to all its Python processes in an
environment variable. In other sessions only the user's own environment variable counts.
"""

import logging
import os
from collections.abc import Mapping, MutableMapping
from enum import StrEnum

logger = logging.getLogger(__name__)

TESTED_PYSPARK = ("4.1", "4.2", "4.3")
PREFIX = "spark.tidelog.accelerate"
"""Alone it switches all accelerators; followed by a name, only that one."""
USER_VARIABLE = "TIDELOG_ACCELERATE"
"""Comma-separated names of the accelerators to use where no setting decides; empty: none."""
VARIABLE = "TIDELOG_ACCELERATORS_ON"
"""The same, set by a session for its processes."""
EXECUTOR_SETTING = f"spark.executorEnv.{VARIABLE}"


class Accelerator(StrEnum):
    LOCAL_FILES = "local_files"
    """Local files without checksums and without a `chmod` process each (`local_files.py`)."""
    DRIVER_READS = "driver_reads"
    """Small micro-batches read by the driver's Python process (`driver_reads.py`)."""
    PYTHON_LAUNCHER = "python_launcher"
    """PySpark imported from the installed, compiled package (`python_launcher.py`)."""
    WARM_PYTHON = "warm_python"
    """Python processes forked from one that has imported what they need (`warm_python.py`)."""
    SHARED_CLASSES = "shared_classes"
    """Classes of Java and Spark mapped from an archive (`shared_classes.py`)."""
    ERROR_TEXTS = "error_texts"
    """Errors for users without the stack trace of a Python process (`error_texts.py`)."""
    WORKER_MEMORY = "worker_memory"
    """Garbage collection that skips what Python workers have loaded (`worker_memory.py`)."""


class WrongSwitch(ValueError):
    """Invalid setting of an accelerator; the message lists the valid ones."""


def is_on(accelerator: Accelerator) -> bool:
    """True if this process uses it."""
    passed_on = os.environ.get(VARIABLE)
    return accelerator in (_on_by_default(os.environ) if passed_on is None else passed_on.split(","))


def _on_by_default(environment: Mapping[str, str]) -> set[str]:
    named = environment.get(USER_VARIABLE)
    if named is not None:
        return set(named.split(","))
    return {*Accelerator} if is_tested(pyspark_version()) else set()


def is_tested(version: str) -> bool:
    return ".".join(version.split(".")[:2]) in TESTED_PYSPARK


def pyspark_version() -> str:
    from pyspark.version import __version__

    return __version__


def apply_switches(settings: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
    """Switches the accelerators of this process and of all processes that it starts."""
    on = switched_on(settings, _on_by_default(environment))
    version = pyspark_version()
    if not on and not is_tested(version) and USER_VARIABLE not in environment and PREFIX not in settings:
        logger.warning(
            "accelerators are off: PySpark %s is not one of the tested versions (%s); set %s=true to turn them on",
            version,
            ", ".join(TESTED_PYSPARK),
            PREFIX,
        )
    environment[VARIABLE] = ",".join(each for each in Accelerator if each in on)


def switched_on(settings: Mapping[str, str], before: set[str]) -> set[str]:
    """The accelerators that are on, given those that are on without the settings. Raises WrongSwitch."""
    on = set(before)
    if PREFIX in settings:
        on = set(Accelerator) if _truth(PREFIX, settings[PREFIX]) else set()
    for name, value in settings.items():
        if not name.startswith(f"{PREFIX}."):
            continue
        accelerator = name.removeprefix(f"{PREFIX}.")
        if accelerator not in set(Accelerator):
            raise WrongSwitch(f"{name} is not an accelerator; accelerators are {', '.join(Accelerator)}")
        on = on | {accelerator} if _truth(name, value) else on - {accelerator}
    return on


def _truth(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise WrongSwitch(f"{name} must be true or false, not {value!r}")
    return value.lower() == "true"
