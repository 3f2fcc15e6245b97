"""Drives the broker with every client, checks files both ways with Apache Kafka, and writes docs/compatibility.md."""

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from compat import (
    command_line,
    config_tools,
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
    spark_page,
    streams,
    written_by_kafka,
    written_by_tidelog,
)
from compat.answers import check as same_responses
from compat.answers import permissions
from compat.answers.check import Comparison
from compat.foreign import FOREIGN_CLIENTS, ForeignClient
from compat.matrix import AnyClient, Outcome
from tests.clients.broker import ApacheKafkaProcess, BrokerProcess, TidelogCluster, TidelogProcess
from tests.clients.features import FEATURES
from tests.clients.registry import CLIENTS, ClientMissing
from tools.apache_kafka import KAFKA_2, KAFKA_3, KAFKA_4, NotAvailable

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "compatibility.md"
HELPER = "confluent-kafka"
TOOL_MODULES = (command_line, config_tools, group_tools, reassignment_tools, executor_calls, rolling_restart)
"""Importing them fills the table of tools."""

INTRODUCTION = """\
# Compatibility

Made by `make compat`; do not edit. Every client runs the same features against a cluster of three brokers with three
replicas of each partition; what a feature does is in `tests/clients/features.py`. "yes": it works. "-": the client (or
that version of the tool) does not offer it. "**NO**": it fails. "?": the client could not be had on the machine. An
empty cell: the suite does not try that with this client.
"""

HELPED_BY_THE_DRIVER = (
    "kafkajs has no consumer without a group: its own connection layer below the consumer fetches here",
    "@platformatic/kafka also hands over records of partitions that a member has just lost: they are left out here",
)


def all_clients() -> list[AnyClient]:
    return [*CLIENTS.values(), *FOREIGN_CLIENTS]


def release_of(client: AnyClient) -> str:
    if isinstance(client, ForeignClient):
        return client.release()
    if client.name == "kcat":
        done = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
        match = re.search(r"Version (\S+).*librdkafka (\S+)", done.stdout + done.stderr)
        return f"{match[1]} (librdkafka {match[2]})" if match else ""
    return importlib.metadata.version(client.name)


def try_clients(
    broker: BrokerProcess, clients: Sequence[AnyClient], features: Sequence[str]
) -> tuple[list[Outcome], dict[str, list[str]]]:
    """The outcomes, and what Kafka's tools find wrong in the broker's files afterwards."""
    broker.start()
    try:
        helper = CLIENTS[HELPER].connect(broker.bootstrap)
        outcomes = []
        for client in clients:
            outcomes += matrix.try_client(client, broker, helper, features)
        helper.close()
        broker.stop()
    finally:
        broker.kill()
    looks: dict[str, Callable[[Path], list[str]]] = {
        "Kafka's tool reads what all these clients wrote": written_by_tidelog.check_files,
        "Kafka's tools decode the records of groups and transactions": written_by_tidelog.check_coordinators,
    }
    return outcomes, {
        title: [wrong for log_dir in broker.log_dirs for wrong in look(log_dir)] for title, look in looks.items()
    }


def file_checks() -> dict[str, Callable[[], list[str]]]:
    checks: dict[str, Callable[[], list[str]]] = {
        f"Kafka {KAFKA_3} reads Tidelog's files: all codecs, transactions, compaction": written_by_tidelog.check
    }
    for version in (KAFKA_3, KAFKA_4):
        for ending, end in (("a clean stop", written_by_kafka.stop), ("kill -9", written_by_kafka.kill)):
            title = f"Tidelog serves what Kafka {version} wrote, after {ending}"
            checks[title] = lambda version=version, end=end: written_by_kafka.check(version, end)  # type: ignore[misc]
            title = f"Tidelog goes on with groups and transactions of Kafka {version}, after {ending}"
            checks[title] = lambda version=version, end=end: coordinators_of_kafka.check(version, end)  # type: ignore[misc]
    for version in (KAFKA_3, KAFKA_4):
        title = f"Kafka Streams {version} counts words exactly once, also when one of two instances is killed"
        checks[title] = lambda version=version: streams.check(version)  # type: ignore[misc]
    checks[f"Tidelog and Kafka {KAFKA_3} take turns on one ZooKeeper and one set of log dirs"] = same_zookeeper.check
    title = f"kafka-reassign-partitions --zookeeper of Kafka {KAFKA_2} moves replicas"
    checks[title] = reassignment_tools.check_old_tool
    checks[f"`tidelog partition` and `tidelog broker` with three brokers of Kafka {KAFKA_3}"] = own_commands.check_three
    checks[f"`tidelog partition` and `tidelog broker` with Kafka {KAFKA_4}"] = own_commands.check_one
    checks[f"Brokers of Tidelog and Kafka {KAFKA_3} are one cluster, and hold the same bytes"] = mixed_cluster.check
    checks["kafka-acls of both versions"] = permission_tools.check
    checks["kafka-configs of users, and Java clients over SASL_SSL that log in again"] = login_tools.check
    title = "Java, franz-go, kafkajs, librdkafka and aiokafka over TLS, with SCRAM-SHA-512 and with certificates"
    checks[title] = secured_clients.check
    title = f"Brokers of Kafka {KAFKA_3} are replaced by Tidelog one by one, and back, under load"
    checks[title] = migration.check
    return checks


def run_file_checks(checks: dict[str, Callable[[], list[str]]]) -> dict[str, list[str]]:
    found = {}
    for title, check in checks.items():
        started = time.monotonic()
        print(f"{title} ... ", end="", flush=True)
        try:
            found[title] = check()
        except NotAvailable:
            raise
        except Exception as error:  # noqa: BLE001 - a broker may end in any way, and the table is to be whole
            found[title] = [f"{type(error).__name__}: {error}"]
        print(f"{'NO' if found[title] else 'yes'} ({time.monotonic() - started:.0f} s)", flush=True)
        for complaint in found[title][:10]:
            print(f"  {complaint}")
    return found


def page(
    outcomes: Sequence[Outcome],
    tools: dict[tuple[str, str], str],
    files: dict[str, list[str]],
    responses: Sequence[Comparison],
    on_spark: Sequence[spark_page.Finding],
    releases: dict[str, str],
) -> str:
    versions = "".join(f"| {name} | {release} |\n" for name, release in releases.items())
    checks = "".join(f"| {title} | {'**NO**' if wrong else 'yes'} |\n" for title, wrong in files.items())
    parts = [
        INTRODUCTION,
        f"## Clients\n\n| client | version |\n| --- | --- |\n{versions}",
        f"## Features\n\n{matrix.table(outcomes)}",
        f"## Kafka's own command line tools\n\n{command_line.table(tools)}",
        f"## Files\n\n| check | |\n| --- | --- |\n{checks}",
    ]
    if responses:
        parts.append(same_responses.section(responses))
    if on_spark:
        parts.append(spark_page.section(on_spark))
    if limits := limits_of(FOREIGN_CLIENTS):
        parts.append(f"## Remarks\n\n{limits}")
    faults = [f"{name}, {version}: {fault}" for (name, version), fault in tools.items() if fault]
    faults += [f"{title}: {complaint}" for title, wrong in files.items() for complaint in wrong[:10]]
    faults += [fault for one in responses for fault in one.faults]
    faults += spark_page.faults(on_spark)
    if told := matrix.remarks(outcomes) + "".join(f"- {fault}\n" for fault in faults):
        parts.append(f"## What failed or was not run\n\n{told}")
    return "\n".join(parts)


def limits_of(clients: Sequence[ForeignClient]) -> str:
    own = "".join(
        f"- {client.name}, {feature}: {reason}\n" for client in clients for feature, reason in client.limits.items()
    )
    return own + "".join(f"- {remark}\n" for remark in HELPED_BY_THE_DRIVER)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Try Tidelog with every client we know.")
    parser.add_argument("--clients", default="", help="only these, separated by commas")
    parser.add_argument("--features", default="", help="only these, separated by commas")
    parser.add_argument("--no-files", action="store_true", help="leave out the checks of files with Apache Kafka")
    parser.add_argument("--no-answers", action="store_true", help="leave out raw requests to Apache Kafka and Tidelog")
    parser.add_argument("--no-tools", action="store_true", help="leave out Kafka's command line tools")
    parser.add_argument("--no-spark", action="store_true", help="leave out the comparison with Spark's own connector")
    parser.add_argument("--only-spark", action="store_true", help="only that; its part of the page is written anew")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="how many brokers the clients talk to")
    parser.add_argument("--apache-kafka", metavar="VERSION", help="try the suite itself against Apache Kafka")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    if options.only_spark:
        return check_spark()
    names = set(filter(None, options.clients.split(",")))
    clients = [client for client in all_clients() if not names or client.name in names]
    is_cluster = options.brokers > 1 and not options.apache_kafka
    features = [name for name in options.features.split(",") if name] or [
        name for name, feature in FEATURES.items() if is_cluster or not feature.needs_cluster
    ]
    left_out = options.no_files or options.no_tools or options.no_answers or options.no_spark
    is_partial = names or options.features or left_out
    is_whole = is_cluster and not is_partial
    tools: dict[tuple[str, str], str] = {}
    files: dict[str, list[str]] = {}
    responses: list[Comparison] = []
    on_spark: list[spark_page.Finding] = []
    try:
        with tempfile.TemporaryDirectory(prefix="compat-") as directory:
            broker = new_broker(Path(directory), options.apache_kafka, is_cluster=is_cluster)
            outcomes, files = try_clients(broker, clients, features)
        if not options.no_tools:
            tools = command_line.check()
        if not options.no_answers:
            responses = [*same_responses.check(), *permissions.check()]
        if not options.no_files:
            files |= run_file_checks(file_checks())
        if not options.no_spark:
            on_spark = spark.check()
    except (NotAvailable, ClientMissing) as error:
        print(error, file=sys.stderr)
        return 1
    text = page(outcomes, tools, files, responses, on_spark, {client.name: release_of(client) for client in clients})
    print("\n" + text)
    if is_whole:
        PAGE.write_text(text)
        print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    has_failed = matrix.has_failed(outcomes) or any(tools.values()) or any(files.values())
    has_failed = has_failed or any(one.faults for one in responses) or bool(spark_page.faults(on_spark))
    return int(has_failed or is_incomplete_in_ci(outcomes))


def check_spark() -> int:
    try:
        found = spark.check()
    except NotAvailable as error:
        print(error, file=sys.stderr)
        return 1
    section, faults = spark_page.section(found), spark_page.faults(found)
    print("\n" + section)
    PAGE.write_text(spark_page.replaced(PAGE.read_text(), section))
    print(f"wrote {PAGE.relative_to(REPOSITORY)}", *faults, sep="\n")
    return int(bool(faults))


def new_broker(directory: Path, kafka_version: str | None, *, is_cluster: bool) -> BrokerProcess:
    if kafka_version:
        return ApacheKafkaProcess(kafka_version, directory)
    return TidelogCluster(directory) if is_cluster else TidelogProcess(directory)


def is_incomplete_in_ci(outcomes: Sequence[Outcome]) -> bool:
    return bool(os.environ.get("CI")) and any(outcome.verdict == "not run" for outcome in outcomes)


if __name__ == "__main__":
    sys.exit(main())
