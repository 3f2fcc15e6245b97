"""`tidelog produce` from JSON and `tidelog consume` by time, key and pattern, against brokers in memory."""

import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from tests.cli.in_process import CommandLine
from tidelog.testing import Cluster

HOUR_MS = 3_600_000
NOON_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "who", "type": "string"}]}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster(brokers=1) as running:
        yield running


@pytest.fixture
def cli(kafka: Cluster, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(kafka, capfd)


def lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(each) + "\n" for each in records)


def read(cli: CommandLine, *arguments: str) -> list[dict[str, object]]:
    shown = cli.good("consume", *arguments, "--until", "now", "--json")
    return [json.loads(line) for line in shown.splitlines()]


def test_json_records_keep_all_their_parts(cli: CommandLine) -> None:
    cli.good("topic", "create", "parts", "--partitions", "2")
    given = lines(
        {"key": "a", "value": "1", "partition": 1, "timestamp": NOON_MS, "headers": {"h": "x"}},
        {"key": "a", "value": None, "partition": 1},
        {"value": {"n": 1}, "partition": 0},
    )
    ended = cli.run("produce", "parts", "--input", "json", "--header", "all=yes", given=given)
    assert (ended.code, ended.err) == (0, "3 records written to parts\n")
    found = {(each["partition"], each["offset"]): each for each in read(cli, "parts", "--from-beginning")}
    assert found[1, 0]["timestamp"] == NOON_MS
    assert found[1, 0]["headers"] == [{"key": "all", "value": "yes"}, {"key": "h", "value": "x"}]
    assert found[1, 1]["value"] is None
    assert found[0, 0]["value"] == '{"n":1}'


def test_copy_of_a_topic_by_a_pipe(cli: CommandLine) -> None:
    cli.good("topic", "create", "source", "--partitions", "1")
    cli.good("produce", "source", "--key-separator", ":", given="a:1\nb:2\n")
    printed = cli.good("consume", "source", "--from-beginning", "--until", "now", "--json")
    cli.good("topic", "create", "copy", "--partitions", "1")
    cli.good("produce", "copy", "--input", "json", given=printed)
    copied = [(each["key"], each["value"], each["timestamp"]) for each in read(cli, "copy", "--from-beginning")]
    assert copied == [(each["key"], each["value"], each["timestamp"]) for each in map(json.loads, printed.splitlines())]


def test_mistake_in_a_line_names_it(cli: CommandLine) -> None:
    said = cli.rejection("produce", "mistakes", "--input", "json", given='{"value": 1}\n{"vlue": 2}\n')
    assert said.startswith("line 2 has the unknown field 'vlue'; fields are key")
    assert said.endswith("the lines before it were written")
    assert "--key-separator is for" in cli.rejection("produce", "x", "--input", "json", "--key-separator", ":")


def test_reading_between_two_times(cli: CommandLine) -> None:
    cli.good("topic", "create", "hours", "--partitions", "1")
    given = lines(*({"value": f"{hour}", "timestamp": NOON_MS + hour * HOUR_MS} for hour in range(4)))
    cli.good("produce", "hours", "--input", "json", "--repeat", "2", given=given)
    between = ["--from", "2026-01-31T13:00:00Z", "--until", "2026-01-31T15:00:00Z"]
    assert cli.good("consume", "hours", *between).split() == ["1", "2"]
    assert cli.good("consume", "hours", "--since", "1m", "--until", "now") == ""
    assert "cannot be combined with --since" in cli.rejection("consume", "hours", "--group", "g", "--since", "1m")


def test_an_end_before_the_start_is_refused(cli: CommandLine) -> None:
    cli.good("produce", "hours", given="a\n")
    for start in (["--from", "2026-01-31T13:00:00Z"], ["--since", "1m"]):
        said = cli.rejection("consume", "hours", *start, "--until", "2020-01-31T13:00:00Z")
        assert said == "the time of --until is before the start; no record is between them"


def test_what_was_written_in_json(cli: CommandLine) -> None:
    ended = cli.run("produce", "counted", "--json", given="a\nb\n")
    assert (json.loads(ended.out), ended.err) == ({"topic": "counted", "written": 2}, "")


def test_a_partition_that_does_not_exist_is_named(cli: CommandLine) -> None:
    cli.good("topic", "create", "single")
    said = cli.rejection("produce", "single", "--partition", "7", given="a\n")
    assert said == "topic single has 1 partition; partition 7 does not exist"


def test_several_topics_keys_and_patterns(cli: CommandLine) -> None:
    for name in ("log-a", "log-b", "other"):
        cli.good("produce", name, "--key-separator", ":", given=f"k1:{name} ok\nk2:{name} ERROR\n")
    look = ["--from-beginning", "--until", "now"]
    assert sorted(cli.good("consume", "log-*", *look, "--grep", "ERR").split("\n")) == [
        "",
        "log-a ERROR",
        "log-b ERROR",
    ]
    assert sorted(cli.good("consume", "log-a", "other", *look, "--key", "k1").splitlines()) == ["log-a ok", "other ok"]
    ended = cli.run("consume", "log-*", *look, "--grep", "ERR", "--max-messages", "1")
    assert ended.err.splitlines()[-1].startswith("1 record shown of ")
    assert "no topic matches nothing-*" in cli.rejection("consume", "nothing-*")
    assert "are for one topic" in cli.rejection("consume", "log-*", "--offset", "1")


def test_group_reads_several_topics(cli: CommandLine) -> None:
    cli.good("produce", "ga", given="1\n2\n")
    cli.good("produce", "gb", given="3\n")
    shown = cli.good("consume", "ga", "gb", "--group", "both", "--from-beginning", "--max-messages", "3")
    assert sorted(shown.split()) == ["1", "2", "3"]
    assert {each["lag"] for each in cli.found("group", "describe", "both")["partitions"]} == {0}


def test_avro_values_are_shown_as_json(cli: CommandLine, tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(AVRO))
    with (tmp_path / "one").open("wb") as file:
        fastavro.schemaless_writer(file, AVRO, {"id": 7, "who": "ann"})
    value = (tmp_path / "one").read_bytes()
    cli.good("topic", "create", "avro", "--partitions", "1")
    cli.good("produce", "avro", "--input", "json", given=lines({"value_base64": _base64(value)}, {"value": "no"}))
    look = ["consume", "avro", "--from-beginning", "--until", "now", "--value-schema", str(schema)]
    assert cli.good(*look).splitlines()[0] == '{"id": 7, "who": "ann"}'
    first, second = [json.loads(line) for line in cli.good(*look, "--json").splitlines()]
    assert first["value"] == {"id": 7, "who": "ann"}
    assert "value_error" in second


def test_protobuf_values_are_shown_as_json(cli: CommandLine, tmp_path: Path) -> None:
    field = descriptor_pb2.FieldDescriptorProto(name="id", number=1, type=5, label=1)
    message = descriptor_pb2.DescriptorProto(name="Order", field=[field])
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", message_type=[message], syntax="proto3")
    (tmp_path / "o.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    cli.good("topic", "create", "proto", "--partitions", "1")
    cli.good("produce", "proto", "--input", "json", given=lines({"value_base64": _base64(b"\x08\x07")}))
    look = ["consume", "proto", "--from-beginning", "--until", "now", "--value-schema"]
    assert cli.good(*look, str(tmp_path / "o.desc")) == '{"id": 7}\n'
    assert "descriptor set: protoc" in cli.rejection(*look, "o.proto")
    assert "cannot read the schema" in cli.rejection(*look, "missing.desc")
    assert "has no message 'X'" in cli.rejection(*look, str(tmp_path / "o.desc"), "--message", "X")


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()
