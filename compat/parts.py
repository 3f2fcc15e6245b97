"""The parts of the compatibility run: each can be run by itself, and starts what it needs."""

import importlib.metadata
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from compat import (
    command_line,
    config_tools,
    console,
    coordinators_of_kafka,
    executor_calls,
    group_tools,
    login_tools,
    matrix,
    migration,
    mixed_cluster,
    own_commands,
    permission_tools,
    reassignment_tools,
    rolling_restart,
    same_zookeeper,
    secured_clients,
    spark,
    streams,
    written_by_kafka,
    written_by_tidelog,
)
from compat.answers import check as same_responses
from compat.answers import moves, permissions
from compat.findings import Findings
from compat.foreign import FOREIGN_CLIENTS, ForeignClient
from compat.matrix import AnyClient
from tests.clients.broker import BrokerProcess, TidelogCluster
from tests.clients.features import FEATURES
from tests.clients.registry import CLIENTS
from tools.apache_kafka import KAFKA_2, KAFKA_3, KAFKA_4

HELPER = "confluent-kafka"
TOOL_MODULES = (command_line, config_tools, group_tools, reassignment_tools, executor_calls, rolling_restart)
"""Importing them fills the table of tools."""

Part = Callable[[], Findings]
NewBroker = Callable[[Path], BrokerProcess]


def all_parts() -> dict[str, Part]:
    """By name, in the order of the page."""
    parts = client_parts(TidelogCluster, list(FEATURES))
    for version in command_line.VERSIONS:
        parts[f"Kafka's tools of {version}"] = partial(_tools, version)
    for title, check in file_checks().items():
        parts[title] = partial(_files, title, check)
    parts["answers to raw requests"] = lambda: Findings(responses=same_responses.check())
    parts["answers about moves"] = lambda: Findings(responses=moves.check())
    parts["answers to principals"] = lambda: Findings(responses=permissions.check())
    parts["Spark"] = lambda: Findings(on_spark=spark.check())
    return parts


def client_parts(new_broker: NewBroker, features: Sequence[str]) -> dict[str, Part]:
    clients: list[AnyClient] = [*CLIENTS.values(), *FOREIGN_CLIENTS]
    return {f"client {client.name}": partial(try_client, client, new_broker, features) for client in clients}


def try_client(client: AnyClient, new_broker: NewBroker, features: Sequence[str]) -> Findings:
    """The outcomes, and what Kafka's tools find wrong in the broker's files afterwards."""
    with tempfile.TemporaryDirectory(prefix="compat-") as directory:
        broker = new_broker(Path(directory))
        broker.start()
        try:
            helper = CLIENTS[HELPER].connect(broker.bootstrap)
            outcomes = matrix.try_client(client, broker, helper, features)
            helper.close()
            broker.stop()
        finally:
            broker.kill()
        logs = Path(directory) / "one-of-each"
        written_by_tidelog.link_one_replica_of_each(broker.log_dirs, logs)
        looks: dict[str, Callable[[Path], list[str]]] = {
            "Kafka's tool reads what all these clients wrote": written_by_tidelog.check_files,
            "Kafka's tools decode the records of groups and transactions": written_by_tidelog.check_coordinators,
        }
        files = {title: look(logs) for title, look in looks.items()}
    return Findings(outcomes=outcomes, files=files, releases={client.name: release_of(client)})


def release_of(client: AnyClient) -> str:
    if isinstance(client, ForeignClient):
        return client.release()
    if client.name == "kcat":
        done = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
        match = re.search(r"Version (\S+).*librdkafka (\S+)", done.stdout + done.stderr)
        return f"{match[1]} (librdkafka {match[2]})" if match else ""
    return importlib.metadata.version(client.name)


def _tools(version: str) -> Findings:
    return Findings(tools=command_line.check(version))


def _files(title: str, check: Callable[[], list[str]]) -> Findings:
    return Findings(files={title: check()})


def file_checks() -> dict[str, Callable[[], list[str]]]:
    checks: dict[str, Callable[[], list[str]]] = {
        f"Kafka {KAFKA_3} reads Tidelog's files: all codecs, transactions, compaction": written_by_tidelog.check
    }
    for version in (KAFKA_3, KAFKA_4):
        for ending, end in (("a clean stop", written_by_kafka.stop), ("kill -9", written_by_kafka.kill)):
            title = f"Tidelog serves what Kafka {version} wrote, after {ending}"
            checks[title] = partial(written_by_kafka.check, version, end)
            title = f"Tidelog goes on with groups and transactions of Kafka {version}, after {ending}"
            checks[title] = partial(coordinators_of_kafka.check, version, end)
    for version in (KAFKA_3, KAFKA_4):
        title = f"Kafka Streams {version} counts words exactly once, also when one of two instances is killed"
        checks[title] = partial(streams.check, version)
    checks[f"Tidelog and Kafka {KAFKA_3} take turns on one ZooKeeper and one set of log dirs"] = same_zookeeper.check
    title = f"kafka-reassign-partitions --zookeeper of Kafka {KAFKA_2} moves replicas"
    checks[title] = reassignment_tools.check_old_tool
    checks[f"`tidelog partition` and `tidelog broker` with three brokers of Kafka {KAFKA_3}"] = own_commands.check_three
    checks[f"`tidelog partition` and `tidelog broker` with Kafka {KAFKA_4}"] = own_commands.check_one
    checks[f"Every view of the console with Kafka {KAFKA_4}"] = console.check
    checks[f"Brokers of Tidelog and Kafka {KAFKA_3} are one cluster, and hold the same bytes"] = mixed_cluster.check
    checks["kafka-acls of both versions"] = permission_tools.check
    checks["kafka-configs of users, and Java clients over SASL_SSL that log in again"] = login_tools.check
    title = "Java, franz-go, kafkajs, librdkafka and aiokafka over TLS, with SCRAM-SHA-512 and with certificates"
    checks[title] = secured_clients.check
    title = f"Brokers of Kafka {KAFKA_3} are replaced by Tidelog one by one, and back, under load"
    checks[title] = migration.check
    return checks
