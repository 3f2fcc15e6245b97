"""From a pipeline's file to its definition, or to all its mistakes."""

from pathlib import Path

import pytest

from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import (
    BadRecords,
    Compaction,
    DeduplicateStep,
    FileSource,
    Format,
    FormatKind,
    PartitionField,
    PythonStep,
    SchemaChanges,
    SqlStep,
    TableKind,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
    WindowStep,
)
from tidelog.pipelines.definition.parsing import load, load_any

MINIMAL = """\
[sources.orders]
topic = "orders"

[sinks.copy]
from = "orders"
topic = "copy"
"""

WHOLE = """\
[pipeline]
name = "orders-to-table"
bootstrap = "${BROKERS:-localhost:29092}"
trigger = "1 second"
checkpoint = "state/checkpoint"

[spark]
"spark.sql.shuffle.partitions" = 2
sql.session.timeZone = "UTC"
spark.ui.enabled = false

[sources.orders]
topic = "orders"
format = "json"
schema = "order_id bigint, customer string, product string, amount double, at timestamp"
starting = "earliest"
dead_letters = "orders.dead"
watermark = { column = "at", delay = "10 min" }
options = { maxOffsetsPerTrigger = 100000, kafka.group.id = "tables" }

[sources.payments]
topics = ["payments", "refunds"]
bootstrap = "other:9092"
format = "protobuf"
schema_file = "payment.desc"
message = "shop.Payment"
confluent_prefix = true
starting = 2026-01-31T13:00:00+01:00
bad_records = "skip"

[sources.customers]
files = "customers/*.csv"
schema = "customer string, country string"
format_options = { header = true }

[[steps]]
view = "per_minute"
from = "Flagged"
window = { column = "at", size = "1 minute", slide = "30s" }
group = ["product"]
aggregate = { orders = "count(*)", revenue = "sum(amount)" }

[[steps]]
view = "flagged"
from = "enriched"
python = "steps:flag"
arguments = { limit = 100, names = ["a"] }

[[steps]]
view = "enriched"
sql = "SELECT * FROM once JOIN customers USING (customer)"

[[steps]]
view = "once"
from = "orders"
deduplicate = ["order_id"]

[sinks.table]
from = "enriched"
delta = "tables/orders"
partition_by = ["day = date(at)", "country"]
schema_changes = "add_columns"
compact = { files = 16, target = "64 MB" }

[sinks.archive]
from = "payments"
iceberg = "shop.payments"
schema_changes = "dead_letter"
dead_letters = "payments.dead"
compact = false
catalog = { type = "rest", uri = "http://localhost:8181" }

[sinks.totals]
from = "PER_minute"
topic = "order-totals"
key = "product"
output_mode = "update"
"""
BROKERS = {"TIDELOG_BOOTSTRAP": "localhost:29092", "TIDELOG_PROFILES": "does-not-exist"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.toml"


def mistakes_of(file: Path, text: str, **environment: str) -> list[str]:
    file.write_text(text)
    with pytest.raises(Mistakes) as raised:
        load(file, BROKERS | environment)
    return [mistake.text("f") for mistake in raised.value.mistakes]


def changed(old: str, new: str) -> str:
    assert old in WHOLE
    return WHOLE.replace(old, new, 1)


# -- what is read


def test_smallest_pipeline_has_defaults_for_all_else(file: Path) -> None:
    file.write_text(MINIMAL)
    pipeline = load(file, BROKERS)
    assert (pipeline.name, pipeline.file, pipeline.checkpoint, pipeline.trigger_ms) == ("orders", file, None, 0)
    assert pipeline.sources == (TopicSource("orders", "localhost:29092", ("orders",)),)
    assert pipeline.sinks == (TopicSink("copy", "orders", "localhost:29092", "copy"),)


def test_brokers_come_from_the_same_variable_as_for_other_commands(file: Path) -> None:
    file.write_text(MINIMAL)
    (source,) = load(file, BROKERS | {"TIDELOG_BOOTSTRAP": "elsewhere:9092"}).sources
    assert isinstance(source, TopicSource)
    assert source.bootstrap == "elsewhere:9092"


def test_topics_without_any_cluster_are_a_mistake(file: Path) -> None:
    file.write_text(MINIMAL)
    with pytest.raises(Mistakes) as raised:
        load(file, {"TIDELOG_PROFILES": "does-not-exist", "TIDELOG_DATA": "nowhere"})
    (mistake,) = raised.value.mistakes
    assert "pipeline.bootstrap: no cluster is named, and there is none in nowhere" in mistake.text("f")


def test_sources_of_every_kind(file: Path) -> None:
    file.write_text(WHOLE)
    orders, payments, customers = load(file, {"BROKERS": "b:1"}).sources
    assert orders == TopicSource(
        name="orders",
        bootstrap="b:1",
        topics=("orders",),
        format=Format(FormatKind.JSON, "order_id bigint, customer string, product string, amount double, at timestamp"),
        bad_records=BadRecords.DEAD_LETTER,
        dead_letter_topic="orders.dead",
        watermark=Watermark("at", "10 minutes"),
        options={"maxOffsetsPerTrigger": "100000", "kafka.group.id": "tables"},
    )
    assert payments == TopicSource(
        name="payments",
        bootstrap="other:9092",
        topics=("payments", "refunds"),
        starting="2026-01-31T12:00:00Z",
        format=Format(
            FormatKind.PROTOBUF,
            schema_file=file.parent / "payment.desc",
            message="shop.Payment",
            confluent_prefix=True,
        ),
        bad_records=BadRecords.SKIP,
    )
    assert customers == FileSource(
        "customers",
        str(file.parent / "customers/*.csv"),
        Format(FormatKind.CSV, "customer string, country string", options={"header": "true"}),
    )


def test_steps_come_in_the_order_in_which_they_read_each_other(file: Path) -> None:
    file.write_text(WHOLE)
    assert load(file, BROKERS).steps == (
        DeduplicateStep("once", "orders", ("order_id",)),
        SqlStep("enriched", "SELECT * FROM once JOIN customers USING (customer)"),
        PythonStep("flagged", "enriched", "steps:flag", {"limit": 100, "names": ["a"]}),
        WindowStep(
            view="per_minute",
            of="flagged",
            column="at",
            size="1 minute",
            slide="30 seconds",
            group=("product",),
            aggregates={"orders": "count(*)", "revenue": "sum(amount)"},
        ),
    )


def test_sinks_of_every_kind(file: Path) -> None:
    file.write_text(WHOLE)
    table, archive, totals = load(file, BROKERS).sinks
    assert table == TableSink(
        name="table",
        of="enriched",
        kind=TableKind.DELTA,
        location=str(file.parent / "tables/orders"),
        partition_by=(PartitionField("day", "date(at)"), PartitionField("country")),
        schema_changes=SchemaChanges.ADD_COLUMNS,
        compaction=Compaction(16, 64 * 1024 * 1024),
    )
    assert archive == TableSink(
        name="archive",
        of="payments",
        kind=TableKind.ICEBERG,
        location="shop.payments",
        schema_changes=SchemaChanges.DEAD_LETTER,
        dead_letter_topic="payments.dead",
        dead_letter_bootstrap="localhost:29092",
        compaction=None,
        catalog={"type": "rest", "uri": "http://localhost:8181"},
    )
    assert totals == TopicSink(
        "totals", "per_minute", "localhost:29092", "order-totals", key="product", output_mode="update"
    )


def test_settings_of_the_whole(file: Path) -> None:
    file.write_text(WHOLE)
    pipeline = load(file, BROKERS)
    assert (pipeline.name, pipeline.trigger_ms) == ("orders-to-table", 1000)
    assert pipeline.checkpoint == str(file.parent / "state/checkpoint")
    assert pipeline.spark == {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }


def test_addresses_of_stores_are_not_paths(file: Path) -> None:
    file.write_text(changed('delta = "tables/orders"', 'delta = "s3://bucket/orders"'))
    table = load(file, BROKERS).sinks[0]
    assert isinstance(table, TableSink)
    assert table.location == "s3://bucket/orders"


# -- mistakes


def test_home_directories_are_known_and_other_tildes_are_names(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for written, meant in (("~/orders", "/home/me/orders"), ("~nobody-knows/x", f"{file.parent}/~nobody-knows/x")):
        file.write_text(MINIMAL.replace('topic = "copy"', f'delta = "{written}"'))
        (sink,) = load(file).sinks
        assert isinstance(sink, TableSink)
        assert sink.location == meant


def test_all_mistakes_are_reported_at_once_by_line(file: Path) -> None:
    text = """\
[pipeline]
nam = "orders"
trigger = "1 fortnight"
[sources.orders]
topci = "orders"
format = "jsn"
schema = "id bigint, customer strnig"
watermark = { colum = "at", delay = 10 }
[sources.customers]
files = "customers/*.csv"
starting = "latest"
[[steps]]
view = "enriched"
sql = '''
SELECT *
FROM ordrs
JOIN customers USING (customer)
'''
[[steps]]
view = "x"
[sinks.table]
from = "enrichd"
delta = "tables/orders"
parquet = "x"
schema_changes = "add_colums"
[sink.totals]
from = "per_minute"
"""
    assert mistakes_of(file, text) == [
        "f:2: pipeline.nam: unknown key; did you mean 'name'?",
        "f:3: pipeline.trigger: expected a duration such as '10 seconds' or '1 hour 30 minutes', found '1 fortnight'",
        "f:5: sources.orders.topci: unknown key; did you mean 'topic'?",
        "f:6: sources.orders.format: expected raw, json, avro, protobuf, csv or debezium, found 'jsn';"
        " did you mean 'json'?",
        "f:7: sources.orders.schema: column 'customer' of the schema has unknown type 'strnig'; did you mean 'string'?",
        "f:8: sources.orders.watermark.delay: expected a string, found the number 10",
        "f:8: sources.orders.watermark.colum: unknown key; did you mean 'column'?",
        "f:11: sources.customers.starting: a source of files has no 'starting'",
        "f:16: steps.1.sql: unknown view 'ordrs'; did you mean 'orders'?",
        "f:19: steps.2: a step needs one of sql, python, window or deduplicate",
        "f:22: sinks.table.from: unknown view 'enrichd'; did you mean 'enriched'?",
        "f:23: sinks.table.delta: parquet and delta exclude each other; keep only one of them",
        "f:25: sinks.table.schema_changes: expected fail, add_columns or dead_letter, found 'add_colums';"
        " did you mean 'add_columns'?",
        "f:26: sink: unknown key; did you mean 'sinks'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'topic = "orders"\n',
            "",
            "f:12: sources.orders: the source orders needs one of topic, topics, pattern, files or jdbc",
        ),
        ('topic = "orders"', 'topic = "or ders"', "f:13: sources.orders.topic: 'or ders' is not a valid topic name: "),
        ('topic = "orders"', "topic = 5", "f:13: sources.orders.topic: expected a string, found the number 5"),
        ('topic = "orders"', 'pattern = "("', "f:13: sources.orders.pattern: '(' is not a valid regular expression: "),
        ('format = "json"', 'format = "parquet"', "f:14: sources.orders.format: expected raw, json, avro, "),
        (
            'format = "json"',
            'format = "raw"',
            "f:15: sources.orders.schema: format = 'raw' has no 'schema'; it belongs to",
        ),
        (
            'starting = "earliest"',
            'starting = "earlist"',
            "f:16: sources.orders.starting: expected earliest, latest or a",
        ),
        (
            'starting = "earliest"',
            'bad_records = "fail"',
            "f:16: sources.orders.bad_records: bad_records = 'fail' and dead",
        ),
        ('message = "shop.Payment"\n', "", "f:21: sources.payments: format = 'protobuf' needs the message type"),
        ('schema_file = "payment.desc"\n', "", "f:21: sources.payments: format = 'protobuf' needs a schema file"),
        ('bootstrap = "other:9092"', 'bootstrap = "other"', "f:23: sources.payments.bootstrap: expected HOST:PORT"),
        (
            'bad_records = "skip"',
            'bad_records = "dead_letter"',
            "f:29: sources.payments.bad_records: bad_records = 'dead",
        ),
        ('"customers/*.csv"', '"customers"', "f:31: sources.customers: the file names have no known extension"),
        ('view = "once"', 'view = "Orders"', "f:54: steps.4.view: view 'Orders' already exists (line 12);"),
        ('view = "once"', 'view = "on-ce"', "f:54: steps.4.view: 'on-ce' is not a valid view name"),
        ('python = "steps:flag"', 'python = "steps.flag"', "f:46: steps.2.python: expected MODULE:FUNCTION such as"),
        ('size = "1 minute"', 'size = "1 minut"', "f:39: steps.1.window.size: expected a duration such as"),
        (
            'size = "1 minute"',
            'size = "0 minutes"',
            "f:39: steps.1.window.size: expected a duration greater than zero",
        ),
        (
            'size = "1 minute"',
            'size = "5 s"',
            "f:39: steps.1.window.slide: windows of 5 seconds every 30 seconds have gaps",
        ),
        ('size = "1 minute", ', "", "f:39: steps.1.window: a window needs 'size', as in size = '1 minute'"),
        (
            'aggregate = { orders = "count(*)", revenue = "sum(amount)" }\n',
            "",
            "f:36: steps.1: a window needs aggregates",
        ),
        ('from = "orders"\ndedup', "dedup", "f:53: steps.4: a step needs 'from', as in from = 'orders'"),
        ('"day = date(at)"', '"day == date(at)"', "f:61: sinks.table.partition_by: expected a column or 'NAME = "),
        (
            '"country"]',
            '"Day"]',
            "f:61: sinks.table.partition_by: partition column 'Day' is given twice",
        ),
        (
            'target = "64 MB"',
            'target = "64 mice"',
            "f:63: sinks.table.compact.target: expected a size such as '128 MB'",
        ),
        (
            "files = 16",
            "files = 0",
            "f:63: sinks.table.compact.files: expected a number of at least 1, found the number 0",
        ),
        (
            '"shop.payments"',
            '"payments"',
            "f:67: sinks.archive.iceberg: expected NAMESPACE.TABLE such as 'shop.orders'",
        ),
        (
            'dead_letters = "payments.dead"\n',
            "",
            "f:68: sinks.archive.schema_changes: schema_changes = 'dead_letter' needs",
        ),
        ('output_mode = "update"', 'output_mode = "upsert"', "f:77: sinks.totals.output_mode: expected append, update"),
        ('output_mode = "update"', "compact = false", "f:77: sinks.totals.compact: a sink to a topic has no 'compact'"),
        ('output_mode = "update"', 'schema = "id int"', "f:77: sinks.totals.schema: a sink to a topic has no 'schema'"),
        (
            'output_mode = "update"',
            "confluent_prefix = true",
            "f:77: sinks.totals.confluent_prefix: format = 'json' has no 'confluent_prefix'",
        ),
        (
            "confluent_prefix = true",
            "format_options = { schema_id = 5 }",
            "f:27: sources.payments.format_options: format = 'protobuf' has no option 'schema_id' for reading",
        ),
        (
            'delta = "tables/orders"',
            'parquet = "s3://bucket/orders"',
            "f:60: sinks.table.parquet: a Parquet table must be a local directory",
        ),
        ('name = "orders-to-table"', 'name = "a/b"', "f:2: pipeline.name: 'a/b' is not a valid pipeline name: "),
        ("[spark]", "spark = 5\n[pipeline.more]", "f:8: pipeline.more: unknown key; keys are "),
    ],
)
def test_each_mistake_names_its_line_and_field(file: Path, old: str, new: str, said: str) -> None:
    assert any(line.startswith(said) for line in mistakes_of(file, changed(old, new)))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (
            "confluent_prefix = true",
            "f:9: sinks.copy.confluent_prefix: the prefix needs a schema id: format_options = {",
        ),
        (
            "format_options = { schema_id = 'x' }",
            "f:9: sinks.copy.format_options: schema_id must be the id of the schema in",
        ),
        (
            "format_options = { shema_id = 5 }",
            "f:9: sinks.copy.format_options: format = 'avro' has no option 'shema_id'",
        ),
        (
            "format_options = { schema_id = 5 }\nconfluent_prefix = false",
            "f:10: sinks.copy.confluent_prefix: schema_id",
        ),
    ],
)
def test_prefix_of_a_registry_is_declared_with_its_id(file: Path, keys: str, said: str) -> None:
    text = MINIMAL + 'format = "avro"\nschema_file = "order.avsc"\n'
    (found,) = mistakes_of(file, text + keys)
    assert found.startswith(said)
    file.write_text(text + "confluent_prefix = true\nformat_options = { schema_id = 5 }")
    assert load(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = \n", "f:1: not valid TOML: Invalid value"),
        ('[sources.a]\ntopic = "x\n', "f:2: not valid TOML: "),
        ("a = 1\na = 2\n", "f:2: not valid TOML: Cannot overwrite a value"),
        ("a = [1,\n2,\n", "f:3: not valid TOML: "),
    ],
)
def test_text_that_is_not_toml(file: Path, text: str, said: str) -> None:
    (mistake,) = mistakes_of(file, text)
    assert mistake.startswith(said)


def test_file_that_is_not_there_or_no_text(file: Path) -> None:
    with pytest.raises(Mistakes, match=r"orders.toml: No such file or directory"):
        load(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Mistakes, match=r"orders.toml: not valid UTF-8"):
        load(file)


def test_empty_file_lacks_a_source_and_a_sink(file: Path) -> None:
    assert mistakes_of(file, "") == [
        "f:1: sources: the pipeline has no source; add a table [sources.orders]",
        "f:1: sinks: the pipeline has no sink; add a table [sinks.table]",
    ]


def test_variables_of_the_environment(file: Path) -> None:
    text = MINIMAL.replace('topic = "orders"', 'topic = "${TOPIC}"').replace(
        'topic = "copy"', 'topic = "${A:-x}${B:-}y"'
    )
    file.write_text(text)
    pipeline = load(file, BROKERS | {"TOPIC": "orders"})
    source, sink = pipeline.sources[0], pipeline.sinks[0]
    assert isinstance(source, TopicSource)
    assert isinstance(sink, TopicSink)
    assert (source.topics, sink.topic) == (("orders",), "xy")
    first = mistakes_of(file, text)[0]
    assert first == "f:2: sources.orders.topic: variable TOPIC is not set; set it, or add a default: ${TOPIC:-...}"


def test_variable_that_is_not_meant_as_one(file: Path) -> None:
    query = "SELECT '$${x} $1' FROM orders"
    file.write_text(f'{MINIMAL}[[steps]]\nview = "x"\nsql = "{query}"\n')
    assert load(file, BROKERS).steps == (SqlStep("x", "SELECT '${x} $1' FROM orders"),)
    file.write_text(f'{MINIMAL}[[steps]]\nview = "x"\nsql = "SELECT \'${{\' FROM orders"\n')
    assert "starts a variable" in mistakes_of(file, file.read_text())[0]


# -- pipelines that are Python


def test_module_with_build(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("NAME = 'mine'\nTRIGGER = '5 seconds'\nSPARK = {'spark.a': 1}\ndef build(spark): ...\n")
    pipeline = load_any(file)
    assert (pipeline.name, pipeline.file, pipeline.trigger_ms) == ("mine", file, 5000)
    assert pipeline.spark == {"spark.a": "1"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def biuld(spark): ...\n", "a pipeline module needs a function build(spark); did you mean 'biuld'?"),
        ("def build(): ...\n", "build must take one argument, the Spark session: def build(spark)"),
        ("x = 1\nimport nowhere_to_be_found\n", "job.py:2: the module cannot be imported: ModuleNotFoundError: "),
        ("def build(spark:\n", "job.py:1: syntax error: '(' was never closed"),
        ("TRIGGER = '5'\ndef build(spark): ...\n", "TRIGGER: expected a duration"),
    ],
)
def test_module_with_a_mistake(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.py"
    file.write_text(text)
    with pytest.raises(Mistakes) as raised:
        load_any(file)
    assert said in str(raised.value)
