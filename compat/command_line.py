"""Kafka's own command line tools, of both versions, against a cluster of three brokers."""

import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.clients.broker import TidelogCluster, TidelogProcess, running
from tests.clients.driver import wait_until
from tidelog.client.network.connection import ClientConnection
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.records import Record, build_batch
from tidelog.runtime.socket_network import SocketNetwork
from tools.apache_kafka import KAFKA_3, KAFKA_4, java_command, run_tool

SOURCE = Path(__file__).resolve().parent / "java" / "Tools.java"
TOOLS = "org.apache.kafka.tools"
VERSIONS = (KAFKA_3, KAFKA_4)
RECORDS = 20_000
TIMEOUT_S = 60.0
MAX_FRAME_BYTES = 1_000_000
PRODUCE_BY_NAME_VERSION = 9


class ToolBox:
    """The tools of one version, in one process."""

    def __init__(self, version: str, bootstrap: str) -> None:
        self.version = version
        self.bootstrap = bootstrap
        self.topic = f"tools-{version.replace('.', '-')}"
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dkafka.log.level=OFF", "-Dlog4j2.level=OFF"]
        command = java_command(version, str(SOURCE), flags=flags)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, tool: str, *arguments: str, at_bootstrap: bool = True) -> str:
        """What the tool printed; a failure is an AssertionError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        main_class = tool if tool.startswith(("kafka.", "org.")) else f"{TOOLS}.{tool}"
        where = ["--bootstrap-server", self.bootstrap] if at_bootstrap else []
        self._process.stdin.write(json.dumps([main_class, *arguments, *where]) + "\n")
        self._process.stdin.flush()
        response = json.loads(self._process.stdout.readline() or '{"code": -1, "output": "the process ended"}')
        assert response["code"] == 0, (
            f"{tool} {' '.join(arguments)} ended with {response['code']}: {response['output']}"
        )
        return str(response["output"])

    def topics(self, *arguments: str) -> str:
        return self.run("TopicCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self.run("kafka.admin.ConfigCommand", *arguments)

    def offsets(self, *arguments: str) -> dict[int, int]:
        printed = self.run("GetOffsetShell", "--topic", self.topic, *arguments)
        return {int(partition): int(offset) for partition, offset in re.findall(r":(\d+):(\d+)", printed)}


Check = Callable[[ToolBox, TidelogCluster], None]


@dataclass(frozen=True)
class Tool:
    name: str
    check: Check
    versions: Sequence[str] = VERSIONS


CHECKS: list[Tool] = []


def tool(name: str, *versions: str) -> Callable[[Check], Check]:
    def register(check: Check) -> Check:
        CHECKS.append(Tool(name, check, versions or VERSIONS))
        return check

    return register


def described(printed: str) -> dict[int, tuple[int, list[int], list[int]]]:
    """Leader, replicas and in-sync replicas by partition."""
    found = re.findall(r"Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", printed)
    return {
        int(partition): (int(leader), numbers(replicas), numbers(in_sync))
        for partition, leader, replicas, in_sync in found
    }


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


@tool("kafka-topics --create, --describe, --alter, --list, --delete")
def administers_topics(box: ToolBox, cluster: TidelogCluster) -> None:
    box.topics("--create", "--topic", box.topic, "--partitions", "3", "--replication-factor", "3")
    for leader, replicas, in_sync in described(box.topics("--describe", "--topic", box.topic)).values():
        assert leader == replicas[0]
        assert sorted(in_sync) == sorted(replicas) == sorted(cluster.brokers)
    placed, other = f"{box.topic}-placed", f"{box.topic}-other"
    box.topics("--create", "--topic", placed, "--replica-assignment", "1:2,3:1")
    box.topics("--alter", "--topic", placed, "--partitions", "4")
    assigned = [assigned for _, assigned, _ in described(box.topics("--describe", "--topic", placed)).values()]
    assert assigned[:2] == [[1, 2], [3, 1]]
    assert len(assigned) == 4
    box.topics("--create", "--topic", other)
    assert {box.topic, placed, other} <= set(box.topics("--list").split())
    box.topics("--delete", "--topic", f"{placed}|{other}")
    wait_until(lambda: not {placed, other} & set(box.topics("--list").split()), "the topics are gone")


@tool("kafka-topics --under-replicated-partitions, --under-min-isr-partitions, --unavailable-partitions")
def finds_what_lacks_replicas(box: ToolBox, cluster: TidelogCluster) -> None:
    placed = f"{box.topic}-lacking"
    box.topics(
        "--create", "--topic", placed, "--replica-assignment", "1:2,2:3,3:1", "--config", "min.insync.replicas=2"
    )

    def partitions_with(flag: str) -> set[int]:
        return set(described(box.topics("--describe", "--topic", placed, flag)))

    lacking = ("--under-replicated-partitions", "--under-min-isr-partitions", "--unavailable-partitions")
    assert [partitions_with(flag) for flag in lacking] == [set(), set(), set()]
    assert partitions_with("--at-min-isr-partitions") == {0, 1, 2}
    with killed(cluster, 1):
        wait_until(lambda: partitions_with(lacking[0]) == {0, 2}, "partitions without broker 1 are found")
        assert partitions_with("--under-min-isr-partitions") == {0, 2}
        assert partitions_with("--unavailable-partitions") == set()
    wait_until(lambda: partitions_with(lacking[0]) == set(), "all replicas are in sync again")
    box.topics("--delete", "--topic", placed)


@contextmanager
def killed(cluster: TidelogCluster, broker_id: int) -> Iterator[None]:
    cluster.brokers[broker_id].kill()
    try:
        yield
    finally:
        cluster.start_brokers([broker_id])


@tool("kafka-configs of topics, of each broker and of all brokers")
def alters_configs(box: ToolBox, cluster: TidelogCluster) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", box.topic)
    box.configs("--alter", *of_topic, "--add-config", "retention.ms=123456,cleanup.policy=[compact,delete]")
    wait_until(lambda: "retention.ms=123456" in box.configs("--describe", *of_topic), "it is described")
    box.configs("--alter", *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    wait_until(lambda: "retention.ms" not in box.configs("--describe", *of_topic), "it is no longer described")
    entities = [("--entity-name", str(broker_id)) for broker_id in cluster.brokers]
    for number, entity in enumerate([*entities, ("--entity-default",)]):
        of_broker = ("--entity-type", "brokers", *entity)
        box.configs("--alter", *of_broker, "--add-config", f"log.retention.ms={700_000 + number}")
        wait_until(lambda of=of_broker, n=number: f"={700_000 + n} " in box.configs("--describe", *of), "it is set")  # type: ignore[misc]
        box.configs("--alter", *of_broker, "--delete-config", "log.retention.ms")
    assert "broker.id=2" in box.configs("--describe", "--entity-type", "brokers", "--entity-name", "2", "--all")


@tool("kafka-producer-perf-test with acks=all while brokers are killed")
def writes_while_brokers_are_killed(box: ToolBox, cluster: TidelogCluster) -> None:
    command = java_command(
        *(box.version, f"{TOOLS}.ProducerPerformance", "--topic", box.topic, "--num-records", str(RECORDS)),
        *("--record-size", "200", "--throughput", str(RECORDS // 8)),
        *("--producer-props", f"bootstrap.servers={box.bootstrap}", "acks=all"),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as producer:
        wait_until(lambda: sum(box.offsets().values()) > 0, "the producer begins")
        for broker_id in (1, 2):
            with killed(cluster, broker_id):
                time.sleep(1)
            wait_until(
                lambda: not described(box.topics("--describe", "--under-replicated-partitions")), "they catch up"
            )
        printed, _ = producer.communicate(timeout=TIMEOUT_S)
    assert f"{RECORDS} records sent" in printed, printed
    assert "Exception" not in re.sub(r"Received invalid metadata error.*|Got error produce response.*", "", printed)
    assert sum(box.offsets().values()) == RECORDS


@tool("kafka-get-offsets")
def lists_offsets(box: ToolBox, cluster: TidelogCluster) -> None:
    assert set(box.offsets()) == {0, 1, 2}
    assert box.offsets("--time", "earliest") == {0: 0, 1: 0, 2: 0}
    assert sum(box.offsets("--time", "latest").values()) == RECORDS
    for partition, offset in box.offsets("--time", "max-timestamp").items():
        assert 0 <= offset < box.offsets()[partition]


@tool("kafka-log-dirs")
def describes_log_dirs(box: ToolBox, cluster: TidelogCluster) -> None:
    printed = box.run("LogDirsCommand", "--describe", "--topic-list", box.topic)
    found = json.loads(printed[printed.index("{") :])
    sizes: dict[str, set[int]] = {}
    for broker in found["brokers"]:
        for log_dir in broker["logDirs"]:
            for replica in log_dir["partitions"]:
                sizes.setdefault(replica["partition"], set()).add(replica["size"])
                assert replica["offsetLag"] == 0
    assert {broker["broker"] for broker in found["brokers"]} == set(cluster.brokers)
    assert set(sizes) == {f"{box.topic}-{partition}" for partition in range(3)}
    assert all(len(of_replicas) == 1 for of_replicas in sizes.values()), sizes


@tool("kafka-replica-verification", KAFKA_3)
def verifies_replicas(box: ToolBox, cluster: TidelogCluster) -> None:
    command = java_command(
        *(box.version, f"{TOOLS}.ReplicaVerificationTool", "--broker-list", box.bootstrap),
        *("--topics-include", box.topic, "--report-interval-ms", "500"),
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as verifier:
        assert verifier.stdout is not None
        printed: list[str] = []
        for line in verifier.stdout:
            printed.append(line)
            if len(printed) > 40 or "max lag is 0" in line:
                break
        verifier.kill()
    assert "max lag is 0" in printed[-1], printed
    assert not [line for line in printed if "isn't equal" in line or "has size" in line], printed


@tool("kafka-delete-records")
def deletes_records(box: ToolBox, cluster: TidelogCluster) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as wanted:
        places = [
            {"topic": box.topic, "partition": 0, "offset": 5},
            {"topic": box.topic, "partition": 1, "offset": -1},
        ]
        json.dump({"partitions": places, "version": 1}, wanted)
        wanted.flush()
        printed = box.run("DeleteRecordsCommand", "--offset-json-file", wanted.name)
    end = box.offsets()[1]
    assert re.search(rf"{box.topic}-0\s+low_watermark: 5\b", printed), printed
    assert re.search(rf"{box.topic}-1\s+low_watermark: {end}\b", printed), printed
    assert box.offsets("--time", "earliest") == {0: 5, 1: end, 2: 0}


@tool("kafka-console-producer")
def writes_lines(box: ToolBox, cluster: TidelogCluster) -> None:
    before = sum(box.offsets().values())
    main_class = "kafka.tools.ConsoleProducer" if box.version == KAFKA_3 else f"{TOOLS}.ConsoleProducer"
    command = java_command(box.version, main_class, "--bootstrap-server", box.bootstrap, "--topic", box.topic)
    subprocess.run(
        [*command, "--request-required-acks", "all"], input="one\ntwo\nthree\n", text=True, check=True,
        capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert sum(box.offsets().values()) == before + 3


@tool("kafka-verifiable-producer")
def writes_verifiably(box: ToolBox, cluster: TidelogCluster) -> None:
    arguments = ("--topic", box.topic, "--max-messages", "100", "--acks", "-1", "--bootstrap-server", box.bootstrap)
    printed = run_tool(box.version, f"{TOOLS}.VerifiableProducer", *arguments)
    assert printed.count("producer_send_success") == 100, printed[-500:]


@tool("kafka-transactions describe-producers")
def describes_producers(box: ToolBox, cluster: TidelogCluster) -> None:
    printed = transactions(box, "describe-producers", "--topic", box.topic, "--partition", "0")
    assert len(printed.strip().splitlines()) > 1, printed


@tool("kafka-transactions list, describe")
def lists_transactions(box: ToolBox, cluster: TidelogCluster) -> None:
    arguments = ("--topic", box.topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={box.bootstrap}")
    main_class = f"{TOOLS}.ProducerPerformance"
    named = ("--transactional-id", box.topic, "--transaction-duration-ms", "500")
    run_tool(box.version, main_class, *arguments, *named, *properties)
    listed = transactions(box, "list")
    assert re.search(rf"{box.topic}\s+[123]\s+\d+\s+CompleteCommit", listed), listed
    printed = transactions(box, "describe", "--transactional-id", box.topic)
    assert re.search(rf"[123]\s+{box.topic}\s+\d+\s+\d+\s+CompleteCommit", printed), printed


@tool("kafka-transactions find-hanging, abort")
def aborts_a_hanging_transaction(box: ToolBox, cluster: TidelogCluster) -> None:
    """One that no coordinator knows of: leaders take its first batch only while they verify nothing."""
    alter = ("--alter", "--entity-type", "brokers", "--entity-default")
    box.configs(*alter, "--add-config", "transaction.partition.verification.enable=false")
    start_offset = box.offsets()[0]
    producer_id = 4_000_000 + VERSIONS.index(box.version)
    leader = write_hanging_batch(cluster, box.topic, producer_id)
    box.configs(*alter, "--delete-config", "transaction.partition.verification.enable")
    found = transactions(box, "find-hanging", "--broker-id", str(leader), "--max-transaction-timeout", "1")
    assert re.search(rf"{box.topic}\s+0\s+{producer_id}\s+3\s+-1\s+{start_offset}\s", found), found
    place = ("--topic", box.topic, "--partition", "0")
    transactions(box, "abort", *place, "--start-offset", str(start_offset))
    described = transactions(box, "describe-producers", *place)
    assert re.search(rf"{producer_id}\s+3\s+\d+\s+0\s+\d+\s+None", described), described


def transactions(box: ToolBox, *arguments: str) -> str:
    """The tool needs the address of the broker before any other argument."""
    where = ("--bootstrap-server", box.bootstrap)
    return box.run("TransactionsCommand", *where, *arguments, at_bootstrap=False)


def write_hanging_batch(cluster: TidelogCluster, topic: str, producer_id: int) -> int:
    """Which broker took it."""
    two_hours_ago_ms = int((time.time() - 7200) * 1000)
    batch = build_batch(
        [Record(0, two_hours_ago_ms, None, b"hanging")],
        producer_id=producer_id, producer_epoch=3, base_sequence=0, is_transactional=True,
    )  # fmt: skip
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, memoryview(batch))])]
    request = ProduceRequest(transactional_id="nobody", acks=-1, timeout_ms=30_000, topic_data=topics)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for broker_id, broker in cluster.brokers.items():
            if asyncio.run(_produce(broker.bootstrap, request)) == NO_ERROR:
                return broker_id
        time.sleep(0.1)  # the setting is on its way to the leader
    raise AssertionError(f"no broker took a batch for {topic}-0")


async def _produce(bootstrap: str, request: ProduceRequest) -> int:
    host, port = bootstrap.split(":")
    connection = await ClientConnection.open(SocketNetwork(MAX_FRAME_BYTES), host, int(port), "compat")
    try:
        response = await connection.ask(request, ProduceResponse, version=PRODUCE_BY_NAME_VERSION)
        return response.responses[0].partition_responses[0].error_code
    finally:
        connection.close()


@tool("kafka-broker-api-versions")
def lists_api_versions(box: ToolBox, cluster: TidelogCluster) -> None:
    package = "kafka.admin" if box.version == KAFKA_3 else TOOLS
    printed = box.run(f"{package}.BrokerApiVersionsCommand")
    for broker in cluster.brokers.values():
        assert broker.bootstrap in printed
    for name in ("Produce(0)", "Fetch(1)", "Metadata(3)", "InitProducerId(22)"):
        assert re.search(rf"{re.escape(name)}: [^\n]*\[usable", printed), name


@tool("kafka-cluster cluster-id")
def prints_the_cluster_id(box: ToolBox, cluster: TidelogCluster) -> None:
    assert re.search(r"Cluster ID: \S{22}\n", box.run("ClusterTool", "cluster-id"))


@tool("kafka-cluster list-endpoints, --include-fenced-brokers", KAFKA_4)
def lists_endpoints(box: ToolBox, cluster: TidelogCluster) -> None:
    printed = box.run("ClusterTool", "list-endpoints")
    assert printed.count("unfenced") == len(cluster.brokers), printed
    with killed(cluster, 2):
        wait_until(lambda: box.run("ClusterTool", "list-endpoints").count("unfenced") == 2, "the broker is gone")
        printed = box.run("ClusterTool", "list-endpoints", "--include-fenced-brokers")
        assert re.search(r"^2\s.*\bfenced\b", printed, re.MULTILINE), printed


@tool("kafka-reassign-partitions --generate")
def proposes_a_reassignment(box: ToolBox, cluster: TidelogCluster) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as wanted:
        json.dump({"topics": [{"topic": box.topic}], "version": 1}, wanted)
        wanted.flush()
        arguments = ("--generate", "--topics-to-move-json-file", wanted.name, "--broker-list", "1,2,3")
        printed = box.run("reassign.ReassignPartitionsCommand", *arguments)
    assert "Proposed partition reassignment" in printed


@tool("kafka-reassign-partitions --execute, --verify, --list, --cancel")
def moves_replicas(box: ToolBox, cluster: TidelogCluster) -> None:
    topic = f"{box.topic}-moved"
    box.topics("--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as wanted:
        moved = [{"topic": topic, "partition": each, "replicas": [3, 1]} for each in (0, 1)]
        json.dump({"partitions": moved, "version": 1}, wanted)
        wanted.flush()
        run = partial(box.run, "reassign.ReassignPartitionsCommand")
        plan = ("--reassignment-json-file", wanted.name)
        assert "Successfully started partition reassignments" in run("--execute", *plan)
        wait_until(lambda: run("--verify", *plan).count("is completed") == len(moved), "replicas moved")
        assert "No partition reassignments found" in run("--list")
        assert "None of the specified partition reassignments are active" in run("--cancel", *plan)
    found = described(box.topics("--describe", "--topic", topic))
    assert {each: replicas for each, (_, replicas, _) in found.items()} == {0: [3, 1], 1: [3, 1]}
    box.topics("--delete", "--topic", topic)


@tool("kafka-reassign-partitions and kafka-log-dirs between the log directories of a broker")
def moves_between_log_dirs(box: ToolBox, cluster: TidelogCluster) -> None:
    topic, records = f"{box.topic}-disks", 5_000
    with tempfile.TemporaryDirectory(prefix="compat-disks-") as scratch:
        directories = [str(Path(scratch).resolve() / name) for name in ("one", "two")]
        settings = {"broker.id": "1", "log.dirs": ",".join(directories), "default.replication.factor": "1"}
        with running(TidelogProcess(Path(scratch), settings)) as broker:
            at_broker = ("--bootstrap-server", broker.bootstrap)
            run = partial(box.run, at_bootstrap=False)
            run("TopicCommand", *at_broker, "--create", "--topic", topic, "--partitions", "2")
            run(
                *("ProducerPerformance", "--topic", topic, "--num-records", str(records), "--record-size", "200"),
                *("--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}"),
            )

            def places() -> dict[str, tuple[str, int]]:
                printed = run("LogDirsCommand", *at_broker, "--describe", "--topic-list", topic)
                (found,) = json.loads(printed[printed.index("{") :])["brokers"]
                return {
                    each["partition"]: (log_dir["logDir"], each["size"])
                    for log_dir in found["logDirs"]
                    for each in log_dir["partitions"]
                    if not each["isFuture"]
                }

            before = places()
            assert {log_dir for log_dir, _ in before.values()} == set(directories), before
            plan = Path(scratch) / "plan.json"
            moved = [
                {"topic": topic, "partition": each, "replicas": [1], "log_dirs": [directories[1]]} for each in (0, 1)
            ]
            plan.write_text(json.dumps({"partitions": moved, "version": 1}))
            reassign = partial(run, "reassign.ReassignPartitionsCommand", *at_broker)
            file = ("--reassignment-json-file", str(plan))
            reassign("--execute", *file)
            wait_until(lambda: reassign("--verify", *file).count("completed successfully") == 2, "replicas moved")
            after = places()
            assert after == {each: (directories[1], size) for each, (_, size) in before.items()}, after


@tool("kafka-leader-election --election-type preferred, unclean")
def elects_leaders(box: ToolBox, cluster: TidelogCluster) -> None:
    def partitions() -> Iterable[tuple[int, list[int], list[int]]]:
        return described(box.topics("--describe", "--topic", box.topic)).values()

    wait_until(lambda: all(replicas[0] in in_sync for _, replicas, in_sync in partitions()), "replicas in sync")
    box.run("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert all(leader == replicas[0] for leader, replicas, _ in partitions())
    printed = box.run("LeaderElectionCommand", "--election-type", "unclean", "--topic", box.topic, "--partition", "0")
    assert "Valid replica already elected" in printed, printed


def check_tools(version: str, cluster: TidelogCluster) -> dict[tuple[str, str], str]:
    """What is wrong (nothing: the empty string) by name and version."""
    outcomes = {}
    box = ToolBox(version, cluster.bootstrap)
    try:
        for each in CHECKS:
            if version in each.versions:
                outcomes[each.name, version] = outcome = fault_of(each, box, cluster)
                print(f"{version} {each.name}: {outcome or 'yes'}", flush=True)
    finally:
        box.close()
    return outcomes


def fault_of(each: Tool, box: ToolBox, cluster: TidelogCluster) -> str:
    try:
        each.check(box, cluster)
    except Exception as error:  # noqa: BLE001 - a tool may print anything, and the table is to be whole
        return (f"{type(error).__name__}: {error}".strip() or each.name)[:1000]
    return ""


def table(outcomes: dict[tuple[str, str], str]) -> str:
    lines = [["tool", *VERSIONS], ["---"] * (len(VERSIONS) + 1)]
    lines += [[each.name, *(cell(outcomes.get((each.name, version))) for version in VERSIONS)] for each in CHECKS]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def cell(fault: str | None) -> str:
    return "-" if fault is None else "**NO**" if fault else "yes"


def check(version: str) -> dict[tuple[str, str], str]:
    with tempfile.TemporaryDirectory(prefix="compat-tools-") as scratch:
        cluster = TidelogCluster(Path(scratch), {"replica.lag.time.max.ms": "3000"})
        cluster.start()
        try:
            outcomes = check_tools(version, cluster)
            cluster.stop()
        finally:
            cluster.kill()
    return outcomes
