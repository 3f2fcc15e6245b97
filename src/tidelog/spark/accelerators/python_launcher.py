"""The Python that Spark starts for planning and for tasks: this one, with PySpark as pip installed it.

Spark puts an archive of PySpark's sources before everything else that its Python processes import from. Nothing in it
is compiled, and none of them can keep what it compiles: a second of work each, and there are four of them before the
first row, and one for every streaming query. What pip installed is the same, and compiled.
"""

import hashlib
import logging
import os
import shlex
import sys
from pathlib import Path

from tidelog.spark import launchers

log = logging.getLogger(__name__)

LAUNCHER = """#!/bin/sh
set -f
IFS=:
rest=
for entry in $PYTHONPATH; do
  case $entry in
    {home}/python/lib/*.zip | {home}/jars/*) ;;
    *) rest=${{rest:+$rest:}}$entry ;;
  esac
done
unset IFS
PYTHONPATH=$rest
export PYTHONPATH
exec {python} "$@"
"""


def python_command(cache_directory: Path | None = None) -> str:
    """A script that starts it; without a place for one, this Python itself."""
    try:
        return str(launcher(cache_directory or launchers.cache_directory()))
    except OSError as error:
        log.info("Spark's Python processes start slowly, as there is no place for a script reason=%s", error)
        return sys.executable


def launcher(cache_directory: Path) -> Path:
    """Of a name of its own for every Python, as there may be many on a machine."""
    text = LAUNCHER.format(home=shlex.quote(pyspark_home()), python=shlex.quote(sys.executable))
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache_directory / f"python-{name}" / "python3"
    launchers.put(path, text)
    return path


def pyspark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)
