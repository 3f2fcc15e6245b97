"""Kafka's `kafka-acls` of both versions against brokers with an authorizer."""

import tempfile
from pathlib import Path

from compat.command_line import VERSIONS, ToolBox
from tests.clients.broker import TidelogProcess, running
from tools.apache_kafka import KAFKA_3

ACL_COMMANDS = {KAFKA_3: "kafka.admin.AclCommand"}
OF_KAFKA_4 = "AclCommand"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def check() -> list[str]:
    """What went wrong."""
    faults = []
    for version in VERSIONS:
        with (
            tempfile.TemporaryDirectory(prefix="compat-acls-") as scratch,
            running(TidelogProcess(Path(scratch), SETTINGS)) as broker,
        ):
            box = ToolBox(version, broker.bootstrap)
            try:
                manage_rules(box)
            except AssertionError as fault:
                faults.append(f"kafka-acls {version}: {fault}")
            finally:
                box.close()
    return faults


def manage_rules(box: ToolBox) -> None:
    def acls(*arguments: str) -> str:
        return box.run(ACL_COMMANDS.get(box.version, OF_KAFKA_4), *arguments)

    acls("--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "readers")
    acls(
        "--add", "--allow-principal", "User:bob", "--producer", "--topic", "ord", "--resource-pattern-type", "prefixed"
    )
    acls(
        *("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1"),
        *("--operation", "All", "--transactional-id", "tx"),
    )
    acls("--add", "--allow-principal", "User:ops", "--operation", "Alter", "--cluster")
    listed = acls("--list")
    for expected in (
        "principal=User:alice, host=*, operation=READ, permissionType=ALLOW",
        "principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW",
        "principal=User:eve, host=10.0.0.1, operation=ALL, permissionType=DENY",
        "resourceType=TRANSACTIONAL_ID, name=tx, patternType=LITERAL",
        "resourceType=TOPIC, name=ord, patternType=PREFIXED",
        "resourceType=CLUSTER, name=kafka-cluster, patternType=LITERAL",
    ):
        assert expected in listed, f"{expected!r} is not listed:\n{listed}"
    matching = acls("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "User:bob" in matching, matching
    assert "User:eve" not in matching, matching
    acls("--remove", "--force", "--topic", "ord", "--resource-pattern-type", "prefixed")
    assert "User:bob" not in acls("--list", "--topic", "ord", "--resource-pattern-type", "any")
    acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders")
    left = acls("--list", "--principal", "User:alice", "--topic", "orders")
    assert "operation=DESCRIBE" in left, left
    assert "operation=READ" not in left, left
