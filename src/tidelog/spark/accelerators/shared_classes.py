"""Class data sharing: classes of Java and Spark are mapped from an archive instead of being loaded at each start.

The bundled Java comes without an archive of its own classes: it is created once, which takes less time than one start
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

logger = logging.getLogger(__name__)

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
"""Uses the archive of Spark's classes if there is one. Java compares the class path with the one at the time of
archiving. It differs if a jar is listed twice, as Spark does: the script lists it once."""

LAY_DOWN_VARIABLE = "TIDELOG_LAY_DOWN_CLASSES"
"""If set, a driver archives its classes when it ends, unless the archive exists: see
`tidelog.spark.lay_down_classes`. Such a driver starts at half the speed."""

DUMP_LIMIT_S = 60


def launcher(java: Path, home: Path, unknown_flag: str) -> str:
    """The script that starts `java` with the archives in `home`; creates the archive of Java's own classes first."""
    classes, spark = home / classes_name(java.parents[1]), Path(pyspark_home())
    if not classes.is_file():
        classes.parent.mkdir(parents=True, exist_ok=True)
        share_classes(java, classes)
    first_jar = next((spark / "jars").glob("slf4j-api-*.jar"), spark / "jars" / "none.jar")
    spark_classes = spark_classes_beside(classes, spark)
    spark_classes.parent.mkdir(parents=True, exist_ok=True)
    delete_others(spark_classes)
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
    """One directory per Java, because the archive builds on the archive of that Java's classes."""
    jars = spark / "jars"
    return classes.parent / classes.stem / f"spark-{state_of(jars if jars.is_dir() else spark)}.jsa"


def delete_others(spark_classes: Path) -> None:
    """Deletes archives of other jars, and incomplete archives: the header is written last."""
    for found in spark_classes.parent.iterdir():
        with suppress(FileNotFoundError):  # another process may delete the same file
            if found != spark_classes or not is_complete(found):
                found.unlink()


def is_complete(archive: Path) -> bool:
    with archive.open("rb") as file:
        return any(file.read(4))


def classes_name(real_home: Path) -> str:
    """One per installation: Java rejects the archive of another one."""
    return f"classes-{state_of(real_home / 'lib' / 'modules')}.jsa"


def state_of(path: Path) -> str:
    found = path.stat()
    return hashlib.sha256(f"{path} {found.st_size} {found.st_mtime_ns}".encode()).hexdigest()[:16]


def share_classes(java: Path, classes: Path) -> None:
    """Creates the archive of Java's own classes.

    Every Java but the bundled one comes with such an archive. Without it Spark starts one or two seconds later,
    which is more than creating it takes, once.
    """
    descriptor, temporary = tempfile.mkstemp(dir=classes.parent)
    os.close(descriptor)
    command = [str(java), "-Xshare:dump", f"-XX:SharedArchiveFile={temporary}", "-Xlog:disable"]
    try:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=DUMP_LIMIT_S, check=True)
        os.replace(temporary, classes)
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("class archive not available, Java starts slower reason=%s", error)
        os.unlink(temporary)
