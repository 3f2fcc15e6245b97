"""Everything that can be known about a pipeline before Spark starts; no Spark and no broker here."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.pipelines.checks import machine_checks
from tidelog.pipelines.checks.cluster_checks import ClusterResponse, NoResponse
from tidelog.pipelines.checks.pipeline_checks import Checked, check_file

HEAD = """\
[sources.orders]
topic = "orders"
format = "json"
schema = "order_id bigint, customer string, at timestamp"
"""
COPY = '[sinks.copy]\nfrom = "orders"\ntopic = "copy"\n'
MINUTES = """\
[[steps]]
view = "per_minute"
from = "orders"
window = { column = "at", size = "1 minute" }
group = ["customer"]
aggregate = { orders = "count(*)" }
[sinks.totals]
from = "per_minute"
topic = "totals"
"""
WATERMARK = 'watermark = { column = "at", delay = "1 minute" }\n'

BROKERS = {"TIDELOG_BOOTSTRAP": "localhost:29092", "TIDELOG_PROFILES": "does-not-exist"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "orders.toml"


def checked(file: Path, text: str, response: ClusterResponse | None = None) -> Checked:
    """With an answer: asks this cluster, whatever its address."""
    file.write_text(text)
    return check_file(
        file,
        is_offline=response is None,
        state_directory=str(file.parent / "state"),
        environment=BROKERS,
        ask=lambda bootstrap: response or ClusterResponse(frozenset(), creates_topics=True),
    )


def findings(file: Path, text: str, response: ClusterResponse | None = None) -> list[str]:
    return [found.text("f") for found in checked(file, text, response).findings]


def cluster(*topics: str, creates_topics: bool = True) -> ClusterResponse:
    return ClusterResponse(frozenset(topics), creates_topics)


# -- references


def test_good_pipeline_has_no_findings_and_is_ready(file: Path) -> None:
    found = checked(file, HEAD + WATERMARK + MINUTES, cluster("orders"))
    assert found.findings == []
    assert found.pipeline is not None
    assert found.pipeline.name == "orders"
    assert [path.name for path in file.parent.iterdir()] == ["orders.toml"]


def test_view_that_nobody_reads_is_a_warning(file: Path) -> None:
    found = checked(file, HEAD + COPY + '[[steps]]\nview = "x"\nsql = "SELECT * FROM orders"\n')
    assert [each.text("f") for each in found.findings] == [
        "f:8: warning: steps.1: no sink reads 'x', directly or through steps"
    ]
    assert found.pipeline is not None


def test_unknown_view_does_not_make_others_unused(file: Path) -> None:
    assert findings(file, HEAD + COPY.replace('"orders"', '"ordres"')) == [
        "f:6: sinks.copy.from: unknown view 'ordres'; did you mean 'orders'?"
    ]


def test_sources_that_differ_in_capitals_only_are_one_view(file: Path) -> None:
    assert findings(file, HEAD + '[sources.Orders]\ntopic = "others"\n' + COPY)[0] == (
        "f:5: sources.Orders: view 'Orders' already exists (line 1); choose another name"
    )


def test_mistake_in_a_schema_of_several_lines_has_its_own_line(file: Path) -> None:
    for schema, line in (("id bigint,\n  name strin,\nat timestamp", 6), ("id bigint,\nid int", 6), ("id\n\n", 5)):
        text = HEAD.replace('"order_id bigint, customer string, at timestamp"', f'"""\n{schema}\n"""')
        assert [found.line for found in checked(file, text + COPY).findings] == [line], schema


def test_columns_may_not_be_named_like_the_place_of_a_record(file: Path) -> None:
    assert findings(file, HEAD.replace("customer", "_offset") + COPY) == [
        "f:4: sources.orders.schema: a column cannot be named _offset: the name is reserved for the position of the"
        " record"
    ]


def test_steps_in_a_circle(file: Path) -> None:
    steps = '[[steps]]\nview = "a"\nsql = "SELECT * FROM b, orders"\n[[steps]]\nview = "b"\nsql = "SELECT * FROM a"\n'
    (said,) = findings(file, HEAD + COPY + steps)
    assert said.startswith("f:")
    assert "these steps form a cycle: " in said
    assert " <- " in said


def test_window_that_is_appended_needs_a_watermark_unless_python_may_set_one(file: Path) -> None:
    (said,) = findings(file, HEAD + MINUTES)
    assert said == (
        "f:8: steps.1.window: sink totals appends a window when it is complete, which needs a watermark;"
        " add watermark = { column = 'at', delay = '10 minutes' } to source orders"
    )
    assert findings(file, HEAD + MINUTES + 'output_mode = "update"\n') == []
    (file.parent / "own_steps.py").write_text("def late(frame): return frame\n")
    step = '[[steps]]\nview = "late"\nfrom = "orders"\npython = "own_steps:late"\n'
    assert findings(file, HEAD + MINUTES.replace('from = "orders"', 'from = "late"') + step) == []


def test_sink_of_files_that_are_read_once(file: Path) -> None:
    (file.parent / "x.csv").touch()
    text = '[sources.orders]\nfiles = "x.csv"\nschema = "a int"\n' + COPY
    (said,) = findings(file, text)
    assert said.startswith("f:5: sinks.copy.from: 'orders' is computed only from files and tables that are read once;")
    assert findings(file, text.replace("[sinks", "stream = true\n[sinks")) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '{ column = "at", delay',
            '{ column = "att", delay',
            "f:5: sources.orders.watermark.column: view 'orders' has no",
        ),
        (
            'column = "at", size',
            'column = "att", size',
            "f:9: steps.1.window.column: view 'orders' has no column 'att'",
        ),
        (
            '["customer"]',
            '["custmer"]',
            "f:10: steps.1.group: view 'orders' has no column 'custmer'; did you mean 'cus",
        ),
    ],
)
def test_columns_that_a_declared_schema_does_not_have(file: Path, old: str, new: str, said: str) -> None:
    text = HEAD + WATERMARK + MINUTES
    assert old in text
    (found,) = findings(file, text.replace(old, new))
    assert found.startswith(said)


def test_columns_of_sinks_are_known(file: Path) -> None:
    table = (
        '[sinks.table]\nfrom = "orders"\ndelta = "table"\npartition_by = ["custmer", "day = date(at)", "customer"]\n'
    )
    assert findings(file, HEAD + table) == [
        "f:8: sinks.table.partition_by: view 'orders' has no column 'custmer'; did you mean 'customer'?"
    ]
    assert findings(file, HEAD + COPY + 'key = "custmer"\n') == [
        "f:8: sinks.copy.key: view 'orders' has no column 'custmer'; did you mean 'customer'?"
    ]
    for known in ("customer", "upper(customer)", "_key", "current_user", "null"):
        assert findings(file, HEAD + COPY + f'key = "{known}"\n') == []


def test_watermark_needs_a_column_of_times(file: Path) -> None:
    text = HEAD + WATERMARK.replace('"at"', '"customer"') + COPY
    assert findings(file, text) == [
        "f:5: sources.orders.watermark.column: 'customer' is string, but a watermark needs a timestamp"
    ]
    for column in ("at", "_timestamp"):
        assert findings(file, HEAD + WATERMARK.replace('"at"', f'"{column}"') + COPY) == []


def test_columns_of_where_a_record_came_from_are_known(file: Path) -> None:
    assert findings(file, HEAD + WATERMARK.replace('"at"', '"_timestamp"') + MINUTES) == []


# -- the cluster


def test_topic_that_is_read_must_exist_and_one_that_is_written_may_be_made(file: Path) -> None:
    assert findings(file, HEAD + COPY, cluster("order", "copy")) == [
        "f:2: sources.orders.topic: topic 'orders' does not exist; did you mean 'order'?"
    ]
    assert findings(file, HEAD + COPY, cluster("orders")) == []
    assert findings(file, HEAD + COPY, cluster("orders", creates_topics=False)) == [
        "f:7: sinks.copy.topic: topic 'copy' does not exist; `tidelog topic create copy` creates it"
    ]


def test_dead_letter_topics_are_topics(file: Path) -> None:
    text = HEAD + 'dead_letters = "dead"\n' + COPY
    (said,) = findings(file, text, cluster("orders", "copy", creates_topics=False))
    assert said.startswith("f:5: sources.orders.dead_letters: topic 'dead' does not exist")


def test_pattern_without_a_topic_is_a_warning(file: Path) -> None:
    text = HEAD.replace('topic = "orders"', 'pattern = "^ord"') + COPY
    assert findings(file, text, cluster("orders")) == []
    assert findings(file, text, cluster("my-orders")) == [
        "f:2: warning: sources.orders.pattern: no topic matches '^ord' yet; the source waits until one is created"
    ]


def test_brokers_that_do_not_answer_are_reported_once_where_they_are_named(file: Path) -> None:
    def nobody(bootstrap: str) -> ClusterResponse:
        raise NoResponse("Connection refused")

    file.write_text('[pipeline]\nbootstrap = "nobody:1"\n' + HEAD + COPY + 'bootstrap = "other:2"\n')
    found = check_file(file, state_directory=str(file.parent), environment=BROKERS, ask=nobody).findings
    hint = "start a cluster with `tidelog up`, or correct 'bootstrap'"
    assert [each.text("f") for each in found] == [
        f"f:2: pipeline.bootstrap: no broker answers at nobody:1 (Connection refused); {hint}",
        f"f:10: sinks.copy.bootstrap: no broker answers at other:2 (Connection refused); {hint}",
    ]


def test_brokers_whose_address_has_a_mistake_are_not_asked(file: Path) -> None:
    for bootstrap, said in (("${SHOP}", "variable SHOP is not set"), ("shop", "expected HOST:PORT")):
        file.write_text(f'[pipeline]\nbootstrap = "{bootstrap}"\n{HEAD}{COPY}')
        found = check_file(file, state_directory=str(file.parent / "state"), environment=BROKERS).findings
        assert [mistake.line for mistake in found] == [2]
        assert found[0].sentence.startswith(said)


def test_pipeline_that_reads_what_it_writes(file: Path) -> None:
    assert findings(file, HEAD + COPY.replace('"copy"', '"orders"')) == [
        "f:7: warning: sinks.copy.topic: the sink writes to topic 'orders', which one of its sources reads: an"
        " endless loop"
    ]
    own_letters = HEAD + 'dead_letters = "orders"\n' + COPY
    assert findings(file, own_letters) == [
        "f:5: sources.orders.dead_letters: 'orders' is read by this source: dead letters would be read again in an"
        " endless loop; choose another topic"
    ]
    pattern = HEAD.replace('topic = "orders"', 'pattern = "orders.*"') + 'dead_letters = "orders.dead"\n' + COPY
    assert findings(file, pattern) == [
        "f:5: sources.orders.dead_letters: 'orders.dead' is read by this source: dead letters would be read again in"
        " an endless loop; choose another topic"
    ]


def test_topic_that_another_sink_fills_may_be_read(file: Path) -> None:
    chain = '[sources.copies]\ntopic = "copy"\n[sinks.more]\nfrom = "copies"\ntopic = "more"\n'
    assert findings(file, HEAD + COPY + chain) == []


def test_offline_asks_nobody(file: Path) -> None:
    def forbidden(bootstrap: str) -> ClusterResponse:
        raise AssertionError(bootstrap)

    file.write_text(HEAD + COPY)
    assert check_file(file, is_offline=True, state_directory=str(file.parent), ask=forbidden).findings == []


@pytest.mark.parametrize("pattern", ["orders", "ders", "^orders"])
def test_pattern_means_what_it_means_to_the_source(file: Path, pattern: str) -> None:
    """Which reads every topic in whose name it is found."""
    text = HEAD.replace('topic = "orders"', f'pattern = "{pattern}"')
    assert findings(file, text + COPY, cluster("new.orders", "orders.eu")) == []
    (said,) = findings(file, text + 'dead_letters = "orders.dead"\n' + COPY)
    assert said.startswith("f:5: sources.orders.dead_letters: 'orders.dead' is read by this source")


def test_topic_in_a_list_is_reported_on_its_line(file: Path) -> None:
    for topics in ('["ordres"]', '["orders", "ordres"]'):
        text = HEAD.replace('topic = "orders"', f"topics = {topics}")
        (said,) = findings(file, text + COPY, cluster("orders"))
        assert said.startswith("f:2: sources.orders.topics: topic 'ordres' does not exist")


def test_topic_that_is_missing_is_reported_beside_other_mistakes_of_its_source(file: Path) -> None:
    text = HEAD.replace('"orders"', '"ordres"').replace("bigint", "bigit")
    assert [line.partition(": ")[0] for line in findings(file, text + COPY, cluster("orders"))] == ["f:2", "f:4"]


# -- the machine


def test_files_and_schemas_that_are_not_there(file: Path) -> None:
    joined = '[[steps]]\nview = "x"\nsql = "SELECT * FROM orders JOIN customers"\n'
    files = '[sources.customers]\nfiles = "customers/*.csv"\n'
    assert findings(file, HEAD + joined + COPY.replace('"orders"', '"x"') + files) == [
        f"f:12: sources.customers.files: no file matches {file.parent}/customers/*.csv"
    ]
    avro = HEAD.replace('format = "json"', 'format = "avro"\nschema_file = "order.avsc"')
    assert findings(file, avro + COPY) == [
        f"f:4: sources.orders.schema_file: file {file.parent}/order.avsc does not exist"
    ]


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("avro", b"record Order", "the Avro schema is not JSON: "),
        ("avro", b"\xff", "the Avro schema is not JSON: "),
        ("avro", b'"long"', "The Avro schema must be a record, whose fields become the columns"),
        (
            "avro",
            b'{"type": "record", "name": "o", "fields": [{}]}',
            "the Avro schema lacks 'name'",
        ),
        ("protobuf", b"message Order {}", "The schema file is not a descriptor set; make it with protoc "),
        ("protobuf", b"", "The descriptor set has no message 'shop.Order'"),
    ],
)
def test_schema_files_that_are_something_else(file: Path, kind: str, content: bytes, said: str) -> None:
    (file.parent / "order.schema").write_bytes(content)
    message = '\nmessage = "shop.Order"' if kind == "protobuf" else ""
    new = f'format = "{kind}"\nschema_file = "order.schema"{message}'
    found = findings(file, HEAD.replace('format = "json"', new) + COPY)
    assert [line.partition(": ")[0] for line in found] == ["f:4"]
    assert found[0].removeprefix("f:4: sources.orders.schema_file: ").startswith(said)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("checked_steps:flag", None),
        ("checked_steps:flg", "module checked_steps has no function 'flg'; did you mean 'flag'?"),
        (
            "checked_stps:flag",
            "there is no module 'checked_stps', neither beside the pipeline file nor installed",
        ),
        ("checked_steps:LIMIT", "'LIMIT' of module checked_steps is not a function"),
        ("checked_steps:alone", "checked_steps:alone cannot be called with a DataFrame and the given arguments: "),
        ("broken_steps:flag", "module broken_steps cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_functions_of_steps(file: Path, function: str, said: str | None) -> None:
    (file.parent / "checked_steps.py").write_text("LIMIT = 5\ndef flag(frame, limit): ...\ndef alone(frame): ...\n")
    (file.parent / "broken_steps.py").write_text("1 / 0\n")
    step = f'[[steps]]\nview = "x"\nfrom = "orders"\npython = "{function}"\narguments = {{ limit = 1 }}\n'
    found = findings(file, HEAD + step + COPY.replace('"orders"', '"x"'))
    for name in ("checked_steps", "broken_steps"):
        sys.modules.pop(name, None)
    assert [line.startswith(f"f:8: steps.1.python: {said}") for line in found] == [True] * (said is not None)


def test_table_in_a_place_that_is_something_else(file: Path) -> None:
    (file.parent / "table").touch()
    delta = '[sinks.table]\nfrom = "orders"\ndelta = "table"\n'
    place = file.parent / "table"
    assert findings(file, HEAD + delta) == [f"f:7: sinks.table.delta: the table {place} is a file, not a directory"]
    place.unlink()
    (place / "_delta_log").mkdir(parents=True)
    assert findings(file, HEAD + delta) == []
    assert findings(file, HEAD + delta.replace("delta", "parquet"))[0].startswith(
        f"f:7: sinks.table.parquet: {place} is a Delta table"
    )
    (place / "_delta_log").rename(place / "other")
    assert findings(file, HEAD + delta)[0].startswith(
        f"f:7: sinks.table.delta: {place} is not empty and not a Delta table"
    )


def test_checkpoint_below_a_file(file: Path) -> None:
    (file.parent / "taken").touch()
    text = '[pipeline]\ncheckpoint = "taken/below"\n' + HEAD + COPY
    (said,) = findings(file, text)
    assert said.startswith(f"f:2: pipeline.checkpoint: the checkpoint {file.parent}/taken/below cannot be created: ")


def test_options_of_the_source_and_the_sink(file: Path) -> None:
    (said,) = findings(file, HEAD + "options = { maxOffsetPerTrigger = 5 }\n" + COPY)
    assert said.startswith("f:5: sources.orders.options")
    assert "maxOffsetsPerTrigger" in said
    (said,) = findings(file, HEAD + COPY + "options = { kafka.compresion.type = 'zstd' }\n")
    assert "kafka.compression.type" in said
    (said,) = findings(file, HEAD + 'options = { subscribe = "x" }\n' + COPY)
    assert said == "f:5: sources.orders.options.subscribe: use 'topic' instead of this option"


def test_every_wrong_option_is_reported_on_its_own_line(file: Path) -> None:
    options = """\
[sources.orders.options]
maxOffsetPerTrigger = 5
failOnDataLoss = "perhaps"
minPartitions = 4
kafka.isolation.levl = "read_committed"
"kafka.fetch.max.wait.ms" = "soon"
startingOffsets = "latest"
"""
    assert [line.partition(": Option")[0] for line in findings(file, HEAD + options + COPY)] == [
        "f:6: sources.orders.options.maxOffsetPerTrigger",
        "f:7: sources.orders.options.failOnDataLoss",
        "f:9: sources.orders.options.kafka.isolation.levl",
        "f:10: sources.orders.options.kafka.fetch.max.wait.ms",
        "f:11: sources.orders.options.startingOffsets: use 'starting' instead of this option",
    ]


def test_options_without_effect_are_warnings_and_nothing_is_logged(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = HEAD + 'options = { groupIdPrefix = "x" }\n' + COPY + "options = { kafka.linger.ms = 5 }\n"
    assert findings(file, text) == [
        "f:5: warning: sources.orders.options.groupIdPrefix: Option 'groupIdPrefix' has no effect",
        "f:9: warning: sinks.copy.options.kafka.linger.ms: Option 'kafka.linger.ms' has no effect",
    ]
    assert caplog.records == []


def test_headers_belong_to_raw_records_only(file: Path) -> None:
    options = "options = { includeHeaders = true }\n"
    assert findings(file, HEAD + options + COPY) == [
        "f:5: warning: sources.orders.options.includeHeaders: has no effect: only format = 'raw' has headers"
    ]
    assert findings(file, '[sources.orders]\ntopic = "orders"\n' + options + COPY) == []


def test_times_of_partitions_do_not_go_with_a_time_for_all(file: Path) -> None:
    options = """options = { startingOffsetsByTimestamp = '{"orders":{"0":1767225600000}}' }\n"""
    said = "starting = '2026-01-31T12:00:00Z' overrides this option; remove one of them"
    assert findings(file, HEAD + "starting = 2026-01-31T12:00:00Z\n" + options + COPY) == [
        f"f:6: sources.orders.options.startingOffsetsByTimestamp: {said}"
    ]
    assert findings(file, HEAD + options + COPY) == []
    assert findings(file, HEAD + "starting = 'latest'\n" + options + COPY) == []


def test_options_of_formats_that_spark_would_pass_over_are_warnings(file: Path) -> None:
    source = HEAD + 'format_options = { allowComents = true, mode = "FAILFAST", DATEFORMAT = "yyyy" }\n'
    sink = COPY + 'format = "csv"\nformat_options = { seperator = ";", header = true }\n'
    assert [line.partition(": warning: ")[2] for line in findings(file, source + sink)] == [
        "sources.orders.format_options.allowComents: Spark has no JSON option 'allowComents'; did you mean"
        " 'allowComments'?",
        "sources.orders.format_options.mode: 'mode' has no effect: use bad_records to choose what happens to records"
        " that do not"
        " parse",
        "sinks.copy.format_options.seperator: Spark has no CSV option 'seperator'",
        "sinks.copy.format_options.header: 'header' has no effect: a record of a topic has no header line",
    ]


def test_options_that_contradict_each_other_are_reported_together(file: Path) -> None:
    options = "options = { minOffsetsPerTrigger = 9, maxOffsetsPerTrigger = 5 }\n"
    (said,) = findings(file, HEAD + options + COPY)
    assert said.startswith("f:5: sources.orders.options: Option 'minOffsetsPerTrigger' (9) must not exceed")


def test_module_that_needs_spark_to_be_imported_is_left_until_it_runs(file: Path) -> None:
    """Such as one with `@udf("int")` before a function, which PySpark makes only where Spark runs."""
    for name, line in (("needing_udf", 'udf("int")(len)'), ("needing_column", 'col("x")')):
        (file.parent / f"{name}.py").write_text(
            f"from pyspark.sql.functions import col, udf\nX = {line}\ndef flag(frame): ...\n"
        )
        step = f'[[steps]]\nview = "x"\nfrom = "orders"\npython = "{name}:flag"\n'
        found = _checked_elsewhere(file, HEAD + step + COPY.replace('"orders"', '"x"'))
        assert found == [
            f"f:8: warning: steps.1.python: module {name} needs a running Spark session in line 2;"
            " its function is checked when the pipeline starts"
        ]


def _checked_elsewhere(file: Path, text: str) -> list[str]:
    """In a process in which no Spark runs, whatever ran in this one."""
    file.write_text(text)
    code = (
        "from pathlib import Path; from tidelog.pipelines.checks.pipeline_checks import check_file;"
        f"found = check_file(Path({str(file)!r}), is_offline=True, state_directory={str(file.parent / 'state')!r});"
        "print(*(each.text('f') for each in found.findings), sep='\\n'); assert found.pipeline"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def test_pipeline_in_python_that_needs_spark_outside_of_build_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "job_needing_spark.py"
    file.write_text("from pyspark.sql.functions import udf\nX = udf('int')(len)\ndef build(spark): ...\n")
    code = (
        "from pathlib import Path; from tidelog.pipelines.checks.pipeline_checks import check_file;"
        f"print(*(each.text('f') for each in check_file(Path({str(file)!r})).findings))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "f:2: this needs a running Spark session; move it into build(spark)\n"


def test_packages_that_are_not_installed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"pyspark", "deltalake"}
    monkeypatch.setattr(machine_checks, "is_installed", lambda package: package not in missing)
    said = findings(file, HEAD + '[sinks.table]\nfrom = "orders"\ndelta = "table"\n')
    assert said == [
        "f:1: Pipelines need Spark: pip install 'tidelog[spark]'",
        "f:7: sinks.table.delta: Delta needs deltalake, which is not installed: pip install 'tidelog[spark]'",
    ]


def test_java_that_is_not_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(file.parent))
    (said,) = findings(file, HEAD + COPY)
    assert said.startswith(f"f:1: JAVA_HOME is {file.parent}, which has no bin/java; ")


def test_module_is_checked_too(tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("def build(spark): ...\n")
    found = check_file(file, state_directory=str(tmp_path))
    assert found.findings == []
    assert found.pipeline is not None
    for text in ("build = 5\n", "raise SystemExit(0)\n"):
        file.write_text(text)
        assert check_file(file, state_directory=str(tmp_path)).pipeline is None


def test_mistakes_in_the_file_do_not_hide_those_of_other_parts(file: Path) -> None:
    text = HEAD.replace('"orders"', '"ordres"') + COPY + '[sinks.other]\nfrom = "orders"\ntopi = "x"\n'
    assert findings(file, text, cluster("orders", "copy")) == [
        "f:2: sources.orders.topic: topic 'ordres' does not exist; did you mean 'orders'?",
        "f:10: sinks.other.topi: unknown key; did you mean 'topic'?",
    ]


def test_checking_never_loads_spark(file: Path) -> None:
    file.write_text(HEAD + COPY)
    code = (
        "import sys; from pathlib import Path; from tidelog.pipelines.checks.pipeline_checks import check_file;"
        f"assert check_file(Path({str(file)!r}), is_offline=True, state_directory={str(file.parent)!r}).pipeline;"
        "print(sorted({'pyspark', 'numba', 'pyarrow', 'numpy', 'deltalake'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
