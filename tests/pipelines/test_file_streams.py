"""Files as they arrive in a directory: every format, each file once, over several runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidelog.pipelines.definition.model import Pipeline, TableSink
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.query_runner import Runner
from tidelog.pipelines.tables.exactly_once_writer import read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = """
[sources.{0}]
files = "{0}"
format = "{0}"
stream = true
schema = "id bigint, name string"
"""
REST = """
[[steps]]
view = "everything"
sql = "SELECT * FROM json UNION ALL SELECT * FROM csv UNION ALL SELECT * FROM parquet"
[sinks.out]
from = "everything"
delta = "out"
"""


def arrive(directory: Path, number: int) -> None:
    """A file of each format, moved into place as a whole."""
    ids = [number * 10, number * 10 + 1]
    new = directory / "new"
    for kind in ("json", "csv", "parquet"):
        if kind == "json":
            new.write_text("".join(f'{{"id": {at}, "name": "{kind}"}}\n' for at in ids))
        elif kind == "csv":
            new.write_text("id,name\n" + "".join(f"{at},{kind}\n" for at in ids))
        else:
            pq.write_table(pa.table({"id": ids, "name": [kind] * 2}), new)
        (directory / kind).mkdir(exist_ok=True)
        new.rename(directory / kind / f"{number}.{kind}")


def run(spark: "SparkSession", pipeline: Pipeline, state: PipelineState) -> list[tuple[int, str]]:
    runner = Runner(spark, pipeline, state=state, once=True)
    runner.start()
    runner.run()
    (sink,) = pipeline.sinks
    assert isinstance(sink, TableSink)
    return sorted((row["id"], row["name"]) for row in read_table(sink, state.directory).to_pylist())


def expected(*numbers: int) -> list[tuple[int, str]]:
    ids = [number * 10 + more for number in numbers for more in (0, 1)]
    return sorted((row_id, kind) for row_id in ids for kind in ("json", "csv", "parquet"))


@pytest.mark.spark
def test_files_are_read_once_as_they_arrive(spark: "SparkSession", tmp_path: Path) -> None:
    file = tmp_path / "files.toml"
    file.write_text("".join(map(SOURCE.format, ("json", "csv", "parquet"))) + REST)
    pipeline, state = load(file), PipelineState(tmp_path / "state", "files")
    arrive(tmp_path, 1)
    assert run(spark, pipeline, state) == expected(1)
    arrive(tmp_path, 2)
    arrive(tmp_path, 3)
    assert run(spark, pipeline, state) == expected(1, 2, 3)
    assert run(spark, pipeline, state) == expected(1, 2, 3)
