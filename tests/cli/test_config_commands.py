"""`tidelog config` and `tidelog topic alter|describe`, against brokers in memory."""

from collections.abc import Iterator

import pytest

from tests.cli.in_process import CommandLine
from tidelog.cli.config_view import changed_text, settings_lines, source_text
from tidelog.client.admin.config_admin import Resource, ResourceKind
from tidelog.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


@pytest.fixture
def cli(kafka: Cluster, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(kafka, capfd)


def entry(source: int) -> DescribeConfigsResourceResult:
    synonym = DescribeConfigsSynonym(name="log.retention.ms", value="5", source=source)
    return DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=source, synonyms=[synonym])


def test_source_names_the_setting_that_is_inherited() -> None:
    assert source_text(entry(4)) == "from the broker's file (log.retention.ms)"
    assert source_text(entry(5)) == "default"
    own, secret = entry(1), entry(1)
    own.synonyms, secret.is_sensitive = [], True
    assert source_text(own) == "set on the topic"
    assert settings_lines([secret])[1].split()[1] == "(hidden)"


def test_change_is_reported_in_one_line() -> None:
    assert changed_text(Resource(ResourceKind.BROKER, ""), [("a", "1")], ["b"]) == "all brokers: a=1, b is unset"


def test_settings_of_a_topic_from_set_to_unset(cli: CommandLine) -> None:
    cli.good("topic", "create", "orders", "--partitions", "2")
    assert cli.good("config", "set", "topic", "orders", "retention.ms=60000") == (
        "changed topic orders: retention.ms=60000\n"
    )
    shown = cli.good("config", "get", "topic", "orders").splitlines()
    assert shown[1].split() == ["retention.ms", "60000", "set", "on", "the", "topic"]
    assert cli.found("config", "get", "topic", "orders", "retention.ms")[0]["source"] == "topic"
    assert "retention.ms is unset" in cli.good("config", "unset", "topic", "orders", "retention.ms")
    assert "are at their defaults" in cli.good("config", "get", "topic", "orders")
    assert len(cli.found("config", "get", "topic", "orders", "--all")) > 20


def test_settings_for_all_brokers_are_inherited_by_topics(cli: CommandLine) -> None:
    cli.good("topic", "create", "inheriting")
    cli.good("config", "set", "broker", "all", "message.max.bytes=2000000")
    (found,) = cli.found("config", "get", "topic", "inheriting")
    assert (found["name"], found["value"], found["source"]) == ("max.message.bytes", "2000000", "all_brokers")
    assert "message.max.bytes" in cli.good("config", "get", "broker", "2")
    cli.good("config", "unset", "broker", "all", "message.max.bytes")
    assert cli.good("config", "get", "broker", "all") == "no setting is set for all brokers\n"


def test_settings_of_a_group_and_of_one_broker(cli: CommandLine) -> None:
    cli.good("config", "set", "group", "readers", "consumer.session.timeout.ms=46000")
    assert "set on the group" in cli.good("config", "get", "group", "readers")
    cli.good("config", "set", "broker", "1", "log.retention.ms=70000")
    assert cli.found("config", "get", "broker", "1", "log.retention.ms")[0]["source"] == "broker"
    assert cli.found("config", "get", "broker", "2", "log.retention.ms")[0]["source"] == "default"


def test_levels_of_loggers_are_listed_where_they_differ(cli: CommandLine) -> None:
    before = cli.good("config", "get", "logger", "1").splitlines()
    assert (before[0].split(), before[1].split()[0]) == (["LOGGER", "LEVEL"], "root")
    try:
        cli.good("config", "set", "logger", "1", "tidelog.replication=ERROR")
        listed = cli.found("config", "get", "logger", "1")
        assert ("tidelog.replication", "ERROR") in [(each["name"], each["value"]) for each in listed]
        assert not [each for each in listed if each["name"].startswith("tidelog.replication.")]
        everything = cli.good("config", "get", "logger", "1", "--all")
        assert "tidelog.replication.partition" in everything
    finally:
        cli.good("config", "unset", "logger", "1", "tidelog.replication")
    assert "9999" in cli.rejection("config", "get", "broker", "9" * 5_000)


def test_brokers_reject_wrong_values_in_one_sentence(cli: CommandLine) -> None:
    cli.good("topic", "create", "strict", "--partitions", "2")
    assert cli.rejection("topic", "alter", "strict", "--set", "retention.ms=soon") == (
        "Invalid value soon for configuration retention.ms: Not a number of type LONG"
    )
    assert "nowhere does not exist" in cli.rejection("config", "set", "topic", "nowhere", "retention.ms=1")
    assert "has no setting foo" in cli.rejection("config", "get", "topic", "strict", "foo")
    assert "Cannot update these configs dynamically" in cli.rejection("config", "set", "broker", "1", "broker.id=7")
    assert "broker 9 is not up" in cli.rejection("config", "get", "broker", "9")
    assert "given twice" in cli.rejection("config", "set", "topic", "strict", "retention.ms=1", "retention.ms=2")
    assert "nothing to change" in cli.rejection("topic", "alter", "strict")
    assert "partitions can only be added" in cli.rejection("topic", "alter", "strict", "--partitions", "2")


def test_what_is_no_setting_cannot_be_unset(cli: CommandLine) -> None:
    """Brokers ignore it, so a misspelt name would seem to have worked."""
    cli.good("topic", "create", "misspelt")
    for kind, name in (("topic", "misspelt"), ("broker", "1")):
        said = cli.rejection("config", "unset", kind, name, "retention.mss")
        listed = f"`tidelog config get {kind} {name} --all` lists all settings"
        assert said == f"{kind} {name} has no setting retention.mss; {listed}"
    assert cli.rejection("config", "unset", "topic", "absent", "retention.ms").startswith("topic absent does not exist")
    said = cli.rejection("topic", "alter", "misspelt", "--unset", "retention.mss", "--partitions", "9")
    assert said.startswith("topic misspelt has no setting retention.mss")


def test_topic_grows_and_nothing_happens_if_one_part_is_wrong(cli: CommandLine) -> None:
    cli.good("topic", "create", "growing", "--partitions", "1")
    cli.rejection("topic", "alter", "growing", "--partitions", "3", "--set", "retention.ms=soon")
    assert cli.found("topic", "describe", "growing")["state"] == "healthy"
    assert len(cli.found("topic", "describe", "growing")["partitions"]) == 1
    assert "nothing was changed" in cli.good("topic", "alter", "growing", "--partitions", "3", "--dry-run")
    said = cli.good("topic", "alter", "growing", "--partitions", "3", "--set", "retention.ms=5")
    assert said == "changed topic growing: retention.ms=5, 3 partitions\n"
    shown = cli.good("topic", "describe", "growing").splitlines()
    assert shown[5].split() == ["retention.ms", "5", "set", "on", "the", "topic"]
    assert len(cli.found("topic", "describe", "growing")["partitions"]) == 3


def test_everything_prints_json(cli: CommandLine) -> None:
    assert cli.found("topic", "create", "machine", "--partitions", "2")["partitions"] == 2
    assert "machine" in [each["name"] for each in cli.found("topic", "list")]
    assert cli.found("topic", "alter", "machine", "--set", "retention.ms=9")["settings"] == {"retention.ms": "9"}
    assert cli.found("partition", "why", "machine", "0")["is_healthy"]
    assert cli.found("partition", "elect") == {"elected": []}
    assert cli.found("group", "list") == []
    reset = cli.found("group", "reset-offsets", "g", "--topic", "machine", "--to-latest", "--execute")
    assert reset["executed"]
    assert cli.found("group", "describe", "g")["partitions"][0]["lag"] == 0
    assert cli.found("group", "delete", "g")["deleted"]
    assert cli.found("transaction", "list") == []
    assert cli.found("broker", "describe", "1")["state"] == "up"
    assert cli.found("topic", "delete", "machine") == {"name": "machine", "deleted": True}
