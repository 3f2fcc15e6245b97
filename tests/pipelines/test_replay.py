"""Tables are replayed from their topics, and what cannot be is refused before anything is touched."""

import io
import json
import os
import random
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.broker import TidelogProcess
from tests.pipelines.change_model import ARRIVAL, HISTORY, LATEST, TWO_KEYS, Change, Model, rows_of
from tests.spark.pyspark_version import limit
from tests.spark_session import Message, TopicMaker, produce
from tidelog.pipelines.definition.model import (
    Format,
    FormatKind,
    ModulePipeline,
    PartitionField,
    Pipeline,
    PythonStep,
    SqlStep,
    TableKind,
    TableSink,
    TopicSink,
    TopicSource,
    Upsert,
    Watermark,
    WindowStep,
)
from tidelog.pipelines.replay.replay import Replay, definition_files, planned, reject_older_definition, table_sinks
from tidelog.pipelines.replay.replay_progress import Parts, ProgressPrinter, line_of
from tidelog.pipelines.replay.replay_start import ReplayRejected, parse_start
from tidelog.pipelines.replay.topic_ranges import Range, ends_by_source, plan, plan_further, range_options
from tidelog.pipelines.replay.upsert_rebuild import rebuilt
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.running.pipeline_state import PipelineState, StateRejected
from tidelog.pipelines.running.query_runner import Runner
from tidelog.pipelines.tables.exactly_once_writer import read_table
from tidelog.spark.offset_json import Positions
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TABLE = TableSink("table", "orders", TableKind.DELTA, "table")
TOTALS = TopicSink("totals", "orders", "localhost:1", "totals")


def source(**more: Any) -> TopicSource:
    return TopicSource("orders", "localhost:1", ("orders",), **more)


def pipeline_with(*sinks: TableSink | TopicSink) -> Pipeline:
    return Pipeline("shop", Path("shop.toml"), (source(),), (), sinks)


# -- what is replayed


def test_all_tables_are_replayed_or_the_one_that_is_named() -> None:
    other = replace(TABLE, name="other")
    pipeline = pipeline_with(TABLE, TOTALS, other)
    assert [sink.name for _, sink in table_sinks(pipeline, None)] == ["table", "other"]
    assert [sink.name for _, sink in table_sinks(pipeline, "other")] == ["other"]


@pytest.mark.parametrize(
    ("pipeline", "wanted", "message"),
    [
        (ModulePipeline("shop", Path("shop.py")), None, "is a Python pipeline"),
        (pipeline_with(TOTALS), None, "it has no tables"),
        (pipeline_with(TABLE), "tabel", "it has no table sink 'tabel'.*table"),
        (pipeline_with(TABLE, TOTALS), "totals", "it has no table sink 'totals'"),
    ],
)
def test_what_has_no_tables_is_refused(pipeline: Pipeline | ModulePipeline, wanted: str | None, message: str) -> None:
    with pytest.raises(ReplayRejected, match=message):
        table_sinks(pipeline, wanted)


def test_a_pipeline_that_runs_with_an_older_definition_is_not_replayed(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("")
    os.utime(file, (0, 0))
    state = PipelineState(tmp_path / "state", "shop")
    reject_older_definition(state, [file])
    with state.running(file):
        reject_older_definition(state, [file])
        os.utime(file, (2**31, 2**31))
        with pytest.raises(ReplayRejected, match=r"was changed after its start: stop it .*, replay, and run it"):
            reject_older_definition(state, [file])
    reject_older_definition(state, [file])


def test_the_modules_of_python_steps_belong_to_the_definition(tmp_path: Path) -> None:
    (tmp_path / "my_steps.py").write_text("")
    steps = (PythonStep("a", "orders", "my_steps:flag"), PythonStep("b", "a", "installed.module:flag"))
    pipeline = replace(pipeline_with(TABLE), file=tmp_path / "shop.toml", steps=steps)
    assert definition_files(pipeline) == [tmp_path / "shop.toml", tmp_path / "my_steps.py"]


def test_there_is_one_replay_at_a_time_and_only_of_what_has_run(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("")
    state = PipelineState(tmp_path / "state", "shop")
    with pytest.raises(StateRejected, match="has not run in"), state.replaying(file):
        pass
    with state.running(file), state.replaying(file):
        with pytest.raises(StateRejected, match="is already being replayed"), state.replaying(file):
            pass
        with pytest.raises(StateRejected, match="belongs to"), state.replaying(tmp_path / "copy.toml"):
            pass
    with state.replaying(file):
        pass


def test_a_sink_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    state = PipelineState(tmp_path, "shop")
    with pytest.raises(ReplayRejected, match="sink table: no checkpoint in"), ExitStack() as stack:
        planned(pipeline_with(TABLE), None, state, stack)


# -- what is read


def test_only_partitions_with_something_to_read_are_read() -> None:
    options = range_options(source(), Range({P0: 5, P1: 7}, {P0: 9, P1: 7}))
    assert json.loads(options["assign"]) == {"orders": [0]}
    assert json.loads(options["startingOffsets"]) == {"orders": {"0": 5}}
    assert json.loads(options["endingOffsets"]) == {"orders": {"0": 9}}
    assert "subscribe" not in options
    assert range_options(source(), None)["subscribe"] == "orders"


def test_options_of_streams_are_left_out_and_others_kept() -> None:
    given = {
        "MaxOffsetsPerTrigger": "5",
        "startingTimestamp": "1",
        "driverReadRows": "1",
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "maxRecordsPerPartition": "7",
    }
    options = range_options(source(options=given, starting="1970-01-01T00:00:00Z"), Range({P0: 0}, {P0: 1}))
    assert set(options) == {
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "includeHeaders",
        "maxRecordsPerPartition",
        "assign",
        "startingOffsets",
        "endingOffsets",
    }
    assert options["maxRecordsPerPartition"] == "7"


def test_ends_belong_to_the_sources_that_read_the_topic() -> None:
    by_pattern = TopicSource("all", "localhost:1", pattern="^pay")
    unused = TopicSource("unused", "localhost:1", ("stock",))
    pipeline = replace(pipeline_with(TABLE), sources=(source(), by_pattern, unused))
    payments = TopicPartition("payments", 0)
    found = ends_by_source(pipeline, {P0: 1, P1: 2, payments: 3})
    assert [(own.name, ends) for own, ends in found] == [("orders", {P0: 1, P1: 2}), ("all", {payments: 3})]


def test_progress_is_reported_in_one_line() -> None:
    assert line_of("table", 7654321, Parts(3, 8), 72.9) == (
        "table: 3 of 8 parts done (37 %), of 7,654,321 records, 1:12 so far"
    )
    assert line_of("table", 1, Parts(0, 0), 0.2) == "table: planning, of 1 record, 0:00 so far"


def test_a_terminal_is_drawn_over_and_a_file_gets_a_line_now_and_then() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for output in (terminal, file):
        printer = ProgressPrinter("table", 100, output)
        for second in range(25):
            printer.update(Parts(second, 25), float(second))
        printer.end()
    assert terminal.getvalue().count("\r") == 26
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert [line.partition(",")[0] for line in file.getvalue().splitlines()] == [
        "table: 10 of 25 parts done (40 %)",
        "table: 20 of 25 parts done (80 %)",
    ]


def test_ranges_are_looked_up_in_the_topics_as_they_are(
    running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    messages = [Message(b"{}", partition=number % 2, timestamp_ms=1000 + number) for number in range(20)]
    produce(running_broker.bootstrap, topic, messages)
    orders = TopicSource("orders", running_broker.bootstrap, (topic,), options={"maxOffsetsPerTrigger": "3"})
    pipeline = Pipeline("shop", tmp_path / "shop.toml", (orders,), (), (TABLE,))
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    until = Positions({first: 8, second: 10}, {})

    everything = plan(pipeline, parse_start(None), until)
    assert everything.ranges == {"orders": Range({first: 0, second: 0}, {first: 8, second: 10})}
    assert (everything.left_out, everything.ranges["orders"].records) == ({}, 18)

    later = plan(pipeline, parse_start("1970-01-01T00:00:01.010Z"), until)
    assert later.ranges["orders"].start == {first: 5, second: 5}
    assert later.left_out == {first: 5, second: 5}
    assert plan(pipeline, parse_start("2100-01-01"), until).ranges["orders"].records == 0

    further = plan_further(pipeline, Positions({first: 8}, {}), Positions({first: 9, second: 10}, {}))
    assert further == {"orders": Range({first: 8, second: 0}, {first: 9, second: 10})}

    with pytest.raises(ReplayRejected, match="was deleted and created again"):
        plan(pipeline, parse_start(None), until._replace(topic_ids={topic: uuid.uuid4().bytes}))


# -- with Spark


class Shop:
    """A pipeline from a topic to a table, run once at a time."""

    def __init__(self, spark: "SparkSession", broker: TidelogProcess, topic: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = broker.bootstrap
        self.topic = topic
        self.directory = directory
        self.state = PipelineState(directory / "state", "shop")
        self.sql = "SELECT id, id * 2 AS price FROM orders"
        self.steps: tuple[SqlStep | WindowStep, ...] = ()
        self.kind = TableKind.DELTA
        self.upsert: Upsert | None = None
        self.produced = 0

    @property
    def pipeline(self) -> Pipeline:
        orders = TopicSource(
            "orders",
            self.bootstrap,
            (self.topic,),
            format=Format(FormatKind.JSON, "id bigint, at timestamp"),
            watermark=Watermark("at", "1 minute"),
            options=limit(7),
        )
        fields = (PartitionField("half", "id % 2"),)
        location = "shop.orders" if self.kind is TableKind.ICEBERG else str(self.directory / self.kind)
        sink = TableSink("table", "priced", self.kind, location, fields, upsert=self.upsert)
        return Pipeline(
            "shop", self.directory / "shop.toml", (orders,), (SqlStep("priced", self.sql), *self.steps), (sink,)
        )

    def produce(self, records: int) -> None:
        numbers = range(self.produced, self.produced + records)
        values = [json.dumps({"id": number, "at": "2026-01-31T12:00:00Z"}).encode() for number in numbers]
        produce(
            self.bootstrap, self.topic, [Message(value, partition=number % 2) for number, value in enumerate(values)]
        )
        self.produced += records

    def run(self) -> None:
        runner = Runner(self.spark, self.pipeline, state=self.state, once=True)
        runner.start()
        runner.run()

    def replay(
        self, start: str | None = None, *, may_leave_out: bool = False, before: Callable[[str], None] | None = None
    ) -> list[str]:
        said: list[str] = []
        with ExitStack() as stack:
            pipeline = self.pipeline
            (sink,) = (sink for sink in pipeline.sinks if isinstance(sink, TableSink))
            more = {} if before is None else {"before": before}
            replay = Replay(pipeline, sink, parse_start(start), self.state, stack, say=said.append, **more)
            replay.check(may_leave_out=may_leave_out)
            replay.run(self.spark)
        return said

    def rows(self) -> list[dict[str, Any]]:
        (sink,) = self.pipeline.sinks
        assert isinstance(sink, TableSink)
        return sorted(read_table(sink, self.state.directory).to_pylist(), key=lambda row: int(row["id"]))


@pytest.mark.spark
def test_tables_are_replayed_with_new_columns_while_batches_arrive_and_from_an_offset(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    shop = Shop(spark, running_broker, new_topic(partitions=2), tmp_path)
    shop.produce(20)
    shop.run()
    assert [(row["id"], row["price"]) for row in shop.rows()] == [(number, number * 2) for number in range(20)]

    shop.sql = "SELECT id, id * 3 AS price, id + 1 AS next FROM orders"
    assert shop.replay()[-1] == f"table: table '{tmp_path}/delta' was rebuilt, 20 rows in 2 files"
    assert [(row["id"], row["price"], row["next"], row["half"]) for row in shop.rows()] == [
        (number, number * 3, number + 1, number % 2) for number in range(20)
    ]

    def run_meanwhile(step: str) -> None:
        if step == "replace the files" and shop.produced == 20:
            shop.produce(10)
            shop.run()

    shop.sql = "SELECT id, id * 4 AS price, id + 1 AS next FROM orders"
    shop.replay(before=run_meanwhile)
    assert [(row["id"], row["price"]) for row in shop.rows()] == [(number, number * 4) for number in range(30)]
    shop.produce(2)
    shop.run()
    assert [row["id"] for row in shop.rows()] == list(range(32))

    with pytest.raises(ReplayRejected, match=r"may have rows of records before .*from offset 10\); .*--yes"):
        shop.replay("10")
    assert len(shop.rows()) == 32
    shop.replay("10", may_leave_out=True)
    assert [row["id"] for row in shop.rows()] == list(range(20, 32))

    shop.sql = "SELECT count(*) AS id FROM orders GROUP BY window(at, '1 minute')"
    with pytest.raises(ReplayRejected, match="sink table cannot be replayed: a step before it aggregates"):
        shop.replay()
    shop.sql = "SELECT nonsense FROM orders"
    with pytest.raises(PipelineFailed, match=r"step priced: .*nonsense"):
        shop.replay()
    assert [row["id"] for row in shop.rows()] == list(range(20, 32))


CHANGES = "SELECT id % 5 AS id, id AS at, id * {price} AS price, id = 14 AS gone FROM orders"


@pytest.mark.spark
def test_a_table_of_upserts_is_rebuilt_by_key_and_continues(
    spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path
) -> None:
    shop = Shop(spark, running_broker, new_topic(partitions=2), tmp_path)
    shop.upsert = Upsert(("id",), ("at",), "gone", omit=("gone",))
    shop.sql = CHANGES.format(price=2)
    shop.produce(15)
    shop.run()
    assert [(row["id"], row["at"], row["price"]) for row in shop.rows()] == [(n, 10 + n, 20 + 2 * n) for n in range(4)]

    shop.sql = CHANGES.format(price=3)
    (tmp_path / "shop.toml").touch()
    with shop.state.running(tmp_path / "shop.toml"), pytest.raises(ReplayRejected, match="stop the pipeline"):
        shop.replay()
    assert shop.replay()[-1].startswith(f"table: table '{tmp_path}/delta' was rebuilt, 4 rows")
    assert [(row["id"], row["at"], row["price"]) for row in shop.rows()] == [(n, 10 + n, 30 + 3 * n) for n in range(4)]
    shop.produce(2)
    shop.run()
    assert [row["price"] for row in shop.rows()] == [45, 48, 36, 39]


@pytest.mark.spark
@pytest.mark.parametrize("upsert", [LATEST, ARRIVAL, HISTORY, TWO_KEYS], ids=["latest", "arrival", "history", "two"])
def test_rows_of_all_changes_are_those_of_the_model(spark: "SparkSession", upsert: Upsert) -> None:
    chance = random.Random(16)
    changes = [
        Change(chance.randrange(30), chance.choice("ab"), float(n), chance.randrange(12), chance.random() < 0.3)
        for n in range(400)
    ]
    if not upsert.has_history:
        changes += [change._replace(at=None, is_delete=True) for change in changes[::9]]
        chance.shuffle(changes)
    model = Model(upsert)
    model.apply(changes)
    ddl = "id bigint, country string, amount double, at bigint, _deleted boolean, _offset bigint"
    rows = spark.createDataFrame([(*change, offset) for offset, change in enumerate(changes)], ddl)
    assert rows_of(rebuilt(rows, upsert).toArrow()) == model.rows()
    with pytest.raises(Exception, match="A row has no id"):
        rebuilt(
            rows.selectExpr("nullif(id, 3) AS id", "country", "amount", "coalesce(at, 0) AS at", "_offset"), upsert
        ).collect()


@pytest.mark.spark
def test_changes_without_an_order_are_refused(spark: "SparkSession") -> None:
    with pytest.raises(ReplayRejected, match=r"without sequence_by, the rows need the column _offset"):
        rebuilt(spark.createDataFrame([], "id bigint, country string"), ARRIVAL)
