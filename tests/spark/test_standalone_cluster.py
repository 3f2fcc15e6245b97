"""A pipeline on a cluster of processes that has nothing of the test's own: and an executor is killed in the middle."""

import json
import time
from pathlib import Path

import pytest

from tests.clients.broker import TidelogProcess
from tests.kills.process_tree import kill_all
from tests.spark.cluster import StandaloneCluster
from tests.spark.pipeline_process import PipelineProcess
from tests.spark.pyspark_version import HAS_LIMITS
from tests.spark_session import Message, TopicMaker, produce

RECORDS = 36_000
PARTITIONS = 4
LIMIT = "maxOffsetsPerTrigger = 12000, " if HAS_LIMITS else ""
PIPELINE = """
[pipeline]
name = "events-to-table"
bootstrap = "{bootstrap}"

[spark]
spark.ui.enabled = false
spark.driver.memory = "512m"
spark.driver.extraJavaOptions = "-XX:TieredStopAtLevel=1"
spark.executor.memory = "512m"
spark.executor.extraJavaOptions = "-XX:TieredStopAtLevel=1"

# Both workers are there before the first task runs.
spark.cores.max = 2
spark.scheduler.minRegisteredResourcesRatio = 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime = "60s"

[sources.events]
topic = "{topic}"
format = "json"
schema = "number bigint"
options = {{ {limit}driverReadRows = 0 }}

# It runs in Python workers, and takes long enough to be killed in.
[[steps]]
view = "slow"
from = "events"
python = "steps:slowly"

[sinks.table]
from = "slow"
delta = "table"
"""
STEPS = """
import time

from pyspark.sql import functions as F

def paused(number):
    if number % 500 == 0:
        time.sleep(0.05)
    return number

def slowly(frame):
    return frame.select(F.udf(paused, "bigint", useArrow=False)("number").alias("number"))
"""
LIMIT_S = 280.0


def wait_for_rows(pipeline: PipelineProcess, table: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not list(table.glob("*.parquet")):
        assert pipeline.exit_code() is None, pipeline.output_and_log()
        assert time.monotonic() < deadline, pipeline.output_and_log()
        time.sleep(0.02)


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_pipeline_on_a_cluster_survives_the_death_of_an_executor(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    topic = new_topic(PARTITIONS)
    values = (json.dumps({"number": number}).encode() for number in range(RECORDS))
    produce(
        running_broker.bootstrap,
        topic,
        (Message(value, partition=number % PARTITIONS) for number, value in enumerate(values)),
    )
    (tmp_path / "steps.py").write_text(STEPS)
    file = tmp_path / "events.toml"
    file.write_text(PIPELINE.format(bootstrap=running_broker.bootstrap, topic=topic, limit=LIMIT))
    with StandaloneCluster(tmp_path) as cluster:
        pipeline = PipelineProcess(file, "events-to-table", "--once", "--master", cluster.master)
        pipeline.start()
        try:
            wait_for_rows(pipeline, tmp_path / "table", LIMIT_S)
            executors = cluster.executors()
            assert len(executors) == 2
            assert kill_all(executors[:1]) == executors[:1]
            assert DeltaTable(tmp_path / "table").version() < RECORDS / 12_000, "killed too late"
            assert pipeline.wait(LIMIT_S) == 0, pipeline.output_and_log()
        finally:
            pipeline.kill()
        numbers = DeltaTable(tmp_path / "table").to_pyarrow_table()["number"].to_pylist()
        assert sorted(numbers) == list(range(RECORDS))
        assert not cluster.executors(), "the application left executors behind"
