"""Java's and Spark's classes, mapped from an archive instead of unpacked at each start (class data sharing).

The bundled Java comes without an archive of its own classes: it is dumped once, which takes less time than one start
without it. Classes of Spark are archived on request (`python -m tidelog.spark.lay_down_classes`).
"""

import hashlib
import logging
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from tidelog.spark.accelerators.python_launcher import pyspark_home

log = logging.getLogger(__name__)

LAUNCHER = """#!/bin/sh
classes="-XX:SharedArchiveFile={classes}"
spark_classes=
if [ -f "{spark_classes}" ]; then
  spark_classes="$classes:{spark_classes}"
elif [ -n "${variable}" ] && [ ! -e "{spark}/conf" ]; then
  spark_classes="-XX:ArchiveClassesAtExit={spark_classes}"
fi
with_spark=
previous=
for argument; do
  shift
  if [ -n "$spark_classes" ] && [ "$previous $argument" = "-cp {spark}/conf:{first_jar}:{spark}/jars/*" ]; then
    with_spark=$spark_classes
    argument="{spark}/conf:{first_jar}"
    for jar in "{spark}/jars/"*.jar; do
      [ "$jar" = "{first_jar}" ] || argument=$argument:$jar
    done
  fi
  previous=$argument
  [ "$argument" = "{unknown_flag}" ] || set -- "$@" "$argument"
done
exec "{java}" "$classes" ${{with_spark:+"$with_spark"}} "-Xlog:cds*=off" "$@"
"""
"""Classes of Spark that were laid down when a driver ended are taken from there by the next. Java compares the class
path with the one that it had then, and finds another if a jar is in there twice, as Spark does it: once is enough."""

LAY_DOWN_VARIABLE = "TIDELOG_LAY_DOWN_CLASSES"
"""Set to anything, it has a driver lay down its classes when it ends, unless they are there: see
`tidelog.spark.lay_down_classes`. A driver that does so starts half as fast."""

DUMP_LIMIT_S = 60


def launcher(java: Path, home: Path, unknown_flag: str) -> str:
    """The script that starts `java` with the archives in `home`; makes the archive of Java's own classes first."""
    classes, spark = home / classes_name(java.parents[1]), Path(pyspark_home())
    if not classes.is_file():
        classes.parent.mkdir(parents=True, exist_ok=True)
        share_classes(java, classes)
    first_jar = next((spark / "jars").glob("slf4j-api-*.jar"), spark / "jars" / "none.jar")
    spark_classes = spark_classes_beside(classes, spark)
    spark_classes.parent.mkdir(parents=True, exist_ok=True)
    forget_others(spark_classes)
    return LAUNCHER.format(
        unknown_flag=unknown_flag,
        variable=LAY_DOWN_VARIABLE,
        java=java,
        classes=classes,
        spark=spark,
        first_jar=first_jar,
        spark_classes=spark_classes,
    )


def spark_classes_beside(classes: Path, spark: Path) -> Path:
    """In a directory for each Java, as they build upon the classes of that one."""
    jars = spark / "jars"
    return classes.parent / classes.stem / f"spark-{state_of(jars if jars.is_dir() else spark)}.jsa"


def forget_others(spark_classes: Path) -> None:
    """Those of other jars, and what was not written to its end: its beginning is written last."""
    for found in spark_classes.parent.iterdir():
        with suppress(FileNotFoundError):  # others may be at it too
            if found != spark_classes or not is_whole(found):
                found.unlink()


def is_whole(archive: Path) -> bool:
    with archive.open("rb") as file:
        return any(file.read(4))


def classes_name(real_home: Path) -> str:
    """For each installation another, as Java accepts no other's."""
    return f"classes-{state_of(real_home / 'lib' / 'modules')}.jsa"


def state_of(path: Path) -> str:
    found = path.stat()
    return hashlib.sha256(f"{path} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:16]


def share_classes(java: Path, classes: Path) -> None:
    """Lays down Java's own classes as they are in memory.

    Every Java has that beside it but the bundled one, which starts Spark a second or two later without: more than this
    takes, once.
    """
    descriptor, temporary = tempfile.mkstemp(dir=classes.parent)
    os.close(descriptor)
    command = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}", "-Xlog:disable"]
    try:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DUMP_LIMIT_S, check=True)
        os.replace(temporary, classes)
    except (OSError, subprocess.SubprocessError) as error:
        log.info("Java starts slowly, as its classes could not be laid down reason=%s", error)
        os.unlink(temporary)
