"""Kafka's `kafka-reassign-partitions`: with a throttle, cancelled half-way, and by znode as before KIP-455."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from compat.command_line import TOOLS, ToolBox, described, tool
from compat.same_zookeeper import CHROOT, Trio
from tests.clients.broker import TidelogCluster, TidelogProcess
from tests.clients.driver import wait_until
from tools.apache_kafka import KAFKA_2, free_port, run_tool
from tools.zookeeper import ZooKeeper

COMMAND = "reassign.ReassignPartitionsCommand"
RATE = "10000000"
HARDLY_ANY_RATE = "1000"
RECORDS = "200000"
"""Too many for a move to end before it is cancelled: however low the rate, a fetch takes a megabyte every 11 s."""


@contextmanager
def plan_file(topic: str, replicas: Mapping[int, Sequence[int]]) -> Iterator[tuple[str, str]]:
    """The flag and the file with this plan."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        partitions = [{"topic": topic, "partition": each, "replicas": list(found)} for each, found in replicas.items()]
        json.dump({"partitions": partitions, "version": 1}, file)
        file.flush()
        yield "--reassignment-json-file", file.name


def replicas_of(box: ToolBox, topic: str) -> dict[int, list[int]]:
    found = described(box.topics("--describe", "--topic", topic))
    return {partition: replicas for partition, (_, replicas, _) in found.items()}


def throttles(box: ToolBox, topic: str) -> set[str]:
    """The throttle settings of the topic and of all brokers."""
    of_topic = box.configs("--describe", "--entity-type", "topics", "--entity-name", topic)
    of_brokers = box.configs("--describe", "--entity-type", "brokers")
    return set(re.findall(r"(?:leader|follower)\.replication\.throttled\.\w+=[^ ]+", of_topic + of_brokers))


@tool("kafka-reassign-partitions --execute --throttle, --verify removes it")
def moves_replicas_with_a_throttle(box: ToolBox, cluster: TidelogCluster) -> None:
    topic = f"{box.topic}-throttled"
    box.topics("--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    with plan_file(topic, {0: [3, 2], 1: [2, 3]}) as plan:
        printed = box.run(COMMAND, "--execute", *plan, "--throttle", RATE)
        assert "Successfully started partition reassignments" in printed, printed
        assert f"The inter-broker throttle limit was set to {RATE} B/s" in printed, printed
        found = throttles(box, topic)
        assert f"leader.replication.throttled.rate={RATE}" in found, found
        assert any(each.startswith("follower.replication.throttled.replicas=") for each in found), found
        wait_until(lambda: box.run(COMMAND, "--verify", *plan).count("is completed") == 2, "replicas moved")
        box.run(COMMAND, "--verify", *plan)
    wait_until(lambda: not throttles(box, topic), "the throttle is removed")
    assert replicas_of(box, topic) == {0: [3, 2], 1: [2, 3]}
    box.topics("--delete", "--topic", topic)


@tool("kafka-reassign-partitions --list, --additional and --cancel of moves under way; CreatePartitions meanwhile")
def cancels_moves_half_way(box: ToolBox, cluster: TidelogCluster) -> None:
    topic = f"{box.topic}-cancelled"
    box.topics("--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    properties = ("--producer-props", f"bootstrap.servers={box.bootstrap}", "acks=all")
    fill = ("--topic", topic, "--num-records", RECORDS, "--record-size", "200", "--throughput", "-1")
    run_tool(box.version, f"{TOOLS}.ProducerPerformance", *fill, *properties)
    with plan_file(topic, {0: [3, 2]}) as plan, plan_file(topic, {1: [3, 1]}) as another:
        box.run(COMMAND, "--execute", *plan, "--throttle", HARDLY_ANY_RATE)
        assert "is still in progress" in box.run(COMMAND, "--verify", *plan)
        listed = box.run(COMMAND, "--list")
        assert re.search(rf"{topic}-0: replicas: 3,2,1\. adding: 3\. removing: 1", listed), listed
        box.run(COMMAND, "--execute", "--additional", *another, "--throttle", HARDLY_ANY_RATE)
        assert box.run(COMMAND, "--list").count("adding: 3") == 2
        box.topics("--alter", "--topic", topic, "--partitions", "3")
        for each in (plan, another):
            printed = box.run(COMMAND, "--cancel", *each)
            assert "Successfully cancelled partition reassignment" in printed, printed
    assert "No partition reassignments found" in box.run(COMMAND, "--list")
    wait_until(lambda: not throttles(box, topic), "the throttle is removed")
    found = replicas_of(box, topic)
    # As in Kafka the order is that of the cancelled target: only there is it known.
    assert (found[0], found[1], len(found[2])) == ([2, 1], [1, 2], 2), found
    box.topics("--delete", "--topic", topic)


def check_old_tool() -> list[str]:
    """Kafka 2.8 writes its requests to /admin/reassign_partitions."""
    with tempfile.TemporaryDirectory(prefix="compat-old-tool-") as scratch:
        directory = Path(scratch)
        with ZooKeeper(free_port(), directory / "zookeeper") as zookeeper:
            trio = Trio(directory, zookeeper.connect_string + CHROOT)
            brokers = [
                TidelogProcess(home, trio.settings(broker_id), trio.ports[broker_id])
                for broker_id, home in trio.directories.items()
            ]
            try:
                with ThreadPoolExecutor(len(brokers)) as starting:
                    list(starting.map(TidelogProcess.start, brokers))
                return _moved_by_old_tool(trio, zookeeper)
            finally:
                for broker in brokers:
                    broker.kill()


def _moved_by_old_tool(trio: Trio, zookeeper: ZooKeeper) -> list[str]:
    admin = AdminClient({"bootstrap.servers": trio.bootstrap, "log_level": 0})
    wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(trio.ports), "all brokers are there")
    assignment = NewTopic("old-tool", 2, replica_assignment=[[1, 2], [2, 1]])
    admin.create_topics([assignment])["old-tool"].result(30)
    with plan_file("old-tool", {0: [3, 1], 1: [2, 3]}) as plan:
        arguments = ("--zookeeper", trio.zookeeper, *plan)
        run_tool(KAFKA_2, "kafka.admin.ReassignPartitionsCommand", "--execute", *arguments)
        verify = ("kafka.admin.ReassignPartitionsCommand", "--verify", *arguments)
        wait_until(lambda: run_tool(KAFKA_2, *verify).count("is complete") == 2, "the tool finds both moves complete")
    found = admin.list_topics("old-tool", timeout=10).topics["old-tool"].partitions
    wrong = [
        f"partition {number} has the replicas {found[number].replicas}"
        for number, wanted in ((0, [3, 1]), (1, [2, 3]))
        if found[number].replicas != wanted
    ]
    client = KazooClient(trio.zookeeper)
    client.start()
    try:
        if client.exists("/admin/reassign_partitions") is not None:
            wrong.append("/admin/reassign_partitions is still there")
    finally:
        client.stop()
        client.close()
    return wrong
