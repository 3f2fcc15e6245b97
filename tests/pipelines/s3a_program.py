"""A pipeline with files, checkpoint and table on S3, run twice. A program of its own: its session has other jars."""

import os
import sys
import urllib.request
from pathlib import Path

from tidelog.pipelines.definition.model import TableSink
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.query_runner import Runner
from tidelog.pipelines.tables.exactly_once_writer import read_table
from tidelog.spark import session
from tidelog.spark.spark_session import register_source

FILE = """
[pipeline]
checkpoint = "s3a://shop/checkpoint"
[sources.orders]
files = "s3://shop/incoming"
format = "json"
stream = true
schema = "id bigint"
[sinks.out]
from = "orders"
delta = "s3://shop/out"
"""


def put(endpoint: str, name: str, content: bytes) -> None:
    # Without a type it would be that of forms, whose content moto takes out of the body.
    headers = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(f"{endpoint}/shop/{name}", content, headers, method="PUT")
    urllib.request.urlopen(request).close()


def main(endpoint: str, jars: str, directory: Path) -> None:
    files = sorted(map(str, Path(jars).glob("*.jar")))
    settings = {
        "spark.jars": ",".join(files),
        "spark.driver.extraClassPath": ":".join(files),
        "spark.ui.enabled": "false",
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }
    spark = session("s3a", "local[2]", settings)
    register_source(spark)
    file = directory / "orders.toml"
    file.write_text(FILE)
    pipeline, state = load(file), PipelineState(directory / "state", "orders")
    (sink,) = pipeline.sinks
    assert isinstance(sink, TableSink)
    for number in (1, 2):
        put(endpoint, f"incoming/{number}.json", f'{{"id": {number}}}\n'.encode())
        runner = Runner(spark, pipeline, state=state, once=True)
        runner.start()
        runner.run()
        found = sorted(row["id"] for row in read_table(sink, state.directory).to_pylist())
        sys.stdout.write(f"{found}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
