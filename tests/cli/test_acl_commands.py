"""`tidelog acl` and `tidelog quota`, against brokers in memory."""

from collections.abc import Iterator

import pytest

from tests.cli.in_process import CommandLine
from tidelog.config.authorization import STANDARD_AUTHORIZER
from tidelog.testing import Cluster


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS;User:admin"}
    with Cluster(brokers=2, settings=settings) as running:
        yield running


@pytest.fixture
def cli(kafka: Cluster, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(kafka, capfd)


def test_rules_from_add_to_remove(cli: CommandLine) -> None:
    added = cli.good("acl", "add", "alice", "read,describe", "topic", "orders")
    assert added.splitlines()[0] == "added 2 rules:"
    assert "  Allow Read to User:alice from any host on Topic orders" in added
    cli.good("acl", "add", "bob", "write", "topic", "ord", "--prefix", "--deny", "--host", "10.0.0.1")
    shown = cli.good("acl", "list", "topic", "orders").splitlines()
    assert shown[0].split() == ["PRINCIPAL", "RULE", "OPERATION", "RESOURCE", "NAME", "HOST"]
    assert shown[-1].split() == ["User:bob", "Deny", "Write", "Topic", "ord...", "10.0.0.1"]
    assert len(cli.found("acl", "list", "--principal", "alice")) == 2
    assert "there is no such rule" in cli.rejection("acl", "remove", "alice", "write", "topic", "orders")
    assert cli.good("acl", "remove", "alice", "read,describe", "topic", "orders").startswith("removed 2 rules:")
    assert cli.good("acl", "list", "--principal", "alice") == "there are no such rules\n"


def test_explain_says_which_rule_decides(cli: CommandLine) -> None:
    cli.good("acl", "add", "carol", "write", "topic", "pay", "--prefix")
    cli.good("acl", "add", "carol", "write", "topic", "payroll", "--deny")

    def explained(*question: str) -> str:
        return cli.good("acl", "explain", *question).strip()

    assert explained("carol", "write", "topic", "payments") == (
        "User:carol may Write Topic payments: rule: Allow Write to User:carol from any host on Topic prefixed pay"
    )
    assert explained("carol", "describe", "topic", "payments").startswith("User:carol may Describe")
    assert explained("carol", "write", "topic", "payroll") == (
        "User:carol may not Write Topic payroll: rule: Deny Write to User:carol from any host on Topic payroll"
    )
    assert "no rule allows it; rules of this principal" in explained("carol", "read", "topic", "payments")
    assert "none for this principal" in explained("dave", "read", "topic", "payments")
    assert explained("dave", "read", "group", "g").endswith("there is no rule for this resource")
    assert explained("admin", "alter", "cluster") == (
        "User:admin may Alter Cluster kafka-cluster: User:admin is in super.users"
    )
    found = cli.found("acl", "explain", "carol", "write", "topic", "payroll")
    assert (found["allowed"], found["rule"]["permission"]) == (False, "Deny")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("acl", "add", "a", "fly", "topic", "t"), "is not an operation"),
        (("acl", "add", "a", "read", "topic"), "expected the name of the topic"),
        (("acl", "add", "a", "alter", "cluster", "mine"), "the cluster has no name"),
        (("acl", "add", "a", "read", "topic", "a/b"), "invalid resource name"),
        (("quota", "set", "producer_byte_rate=1"), "whose limit?"),
        (("quota", "set", "--user", "a", "producer_byte_rate=x"), "needs a number"),
        (("quota", "set", "--user", "a", "speed=1"), "Invalid configuration key speed"),
        (("quota", "set", "--ip", "10.0.0.1", "--user", "a", "connection_creation_rate=1"), "should not be combined"),
    ],
)
def test_mistakes_are_one_sentence(cli: CommandLine, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in cli.rejection(*arguments)


def test_quotas_from_set_to_unset(cli: CommandLine) -> None:
    assert cli.good("quota", "list") == "nobody has a limit\n"
    assert cli.good("quota", "set", "--user", "alice", "--client-id", "default", "producer_byte_rate=1024") == (
        "changed user alice, client-id <default>: producer_byte_rate=1024\n"
    )
    cli.good("quota", "set", "--ip", "10.0.0.1", "connection_creation_rate=5000000")
    shown = cli.good("quota", "list").splitlines()
    assert shown[0].split() == ["USER", "CLIENT", "ID", "ADDRESS", "LIMIT", "VALUE"]
    assert [line.split() for line in shown[1:]] == [
        ["-", "-", "10.0.0.1", "connection_creation_rate", "5000000"],
        ["alice", "(default)", "-", "producer_byte_rate", "1024"],
    ]
    cli.good("quota", "unset", "--user", "alice", "--client-id", "default", "producer_byte_rate")
    assert len(cli.found("quota", "list")) == 1


def test_without_an_authorizer_the_command_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with Cluster() as unguarded:
        cli = CommandLine(unguarded, capfd)
        assert "no authorizer" in cli.rejection("acl", "add", "a", "read", "topic", "t")
        assert "everybody may do everything" in cli.good("acl", "explain", "a", "read", "topic", "t")
