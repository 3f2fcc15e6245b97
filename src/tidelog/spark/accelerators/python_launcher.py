"""Python launcher for Spark's Python processes: this Python, with PySpark as pip installed it.

Spark puts a zip archive of PySpark's sources first on the path of its Python processes. It is not compiled, and
processes cannot cache what they compile: a second of work each, for four processes before the first row and one for
every streaming query. The installed package is the same, and compiled.

A process without a memory limit is forked from one that has imported what it needs, if there is one
(`warm_python.py`). A limit would count what was imported.
"""

import hashlib
import logging
import os
import shlex
import sys
from pathlib import Path

from tidelog.spark import launchers
from tidelog.spark.accelerators import warm_python

logger = logging.getLogger(__name__)

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
case $1:$2:$PYSPARK_EXECUTOR_MEMORY_MB$PYSPARK_PLANNER_MEMORY_MB in
  -m:pyspark.*:)
    if [ -S "${server}" ]; then
      exec {python} -I -S {client} {python} "${server}" "$@"
    fi ;;
esac
exec {python} "$@"
"""


def python_command(cache_directory: Path | None = None) -> str:
    """The launcher script; this Python itself if the script cannot be written."""
    try:
        return str(launcher(cache_directory or launchers.cache_directory()))
    except OSError as error:
        logger.info("python launcher not available, Python processes start slower reason=%s", error)
        return sys.executable


def launcher(cache_directory: Path) -> Path:
    """One script per Python: a machine may have several."""
    text = LAUNCHER.format(
        home=shlex.quote(pyspark_home()),
        python=shlex.quote(sys.executable),
        client=shlex.quote(str(Path(__file__).with_name("fork_client.py"))),
        server=warm_python.VARIABLE,
    )
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache_directory / f"python-{name}" / "python3"
    launchers.put(path, text)
    return path


def pyspark_home() -> str:
    import pyspark

    return os.path.dirname(pyspark.__file__)
