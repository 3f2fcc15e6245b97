"""A program of Spark Connect: reads a topic, and writes a topic and two tables. Run by a test in its own process."""

import sys
from pathlib import Path


def main(bootstrap: str, topic: str, out: str, directory: Path) -> None:
    from pyspark.sql import SparkSession

    from tidelog.spark import table

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.read.format("tidelog").options(**options).load()
    assert records.count() == 10
    rows = spark.readStream.format("tidelog").options(**options).load()
    rows = rows.selectExpr("CAST(CAST(value AS string) AS bigint) AS id", "offset")
    by_format = rows.writeStream.format("tidelog-table").options(delta=str(directory / "by-format"))
    by_function = rows.writeStream.foreachBatch(table(delta=str(directory / "by-function"), name="connect"))
    to_topic = rows.selectExpr("CAST(id * 2 AS string) AS value").writeStream.format("tidelog")
    to_topic = to_topic.options(**{"kafka.bootstrap.servers": bootstrap, "topic": out})
    for name, writer in (("format", by_format), ("function", by_function), ("topic", to_topic)):
        checkpoint = str(directory / f"checkpoint-{name}")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        print("done", name, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
