"""Kafka's own command line tools for groups: what they show of members and offsets, and what they change."""

import json
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from compat.command_line import TOOLS, ToolBox, tool
from tests.clients.broker import TidelogCluster
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import GroupMember, MemberOptions, ProducerOptions, Record, wait_until
from tools.apache_kafka import KAFKA_4, run_tool

PARTITIONS = 4
RECORDS = 10
"""In each partition."""
COMMAND = "consumer.group.ConsumerGroupCommand"


class Readers:
    """A topic with records, and two members of a group that have read and committed everything."""

    def __init__(self, box: ToolBox, name: str, *, is_assigned_by_broker: bool = False) -> None:
        self._box = box
        self.topic = f"{box.topic}-{name}"
        self.group = f"group-of-{self.topic}"
        self._driver = ConfluentDriver(box.bootstrap)
        self._options = MemberOptions(is_assigned_by_broker=is_assigned_by_broker)
        self.members: list[GroupMember] = []

    def prepare(self) -> None:
        self._box.topics("--create", "--topic", self.topic, "--partitions", str(PARTITIONS))
        for partition in range(PARTITIONS):
            self.produce(partition, RECORDS)

    def produce(self, partition: int, count: int) -> None:
        self._driver.produce(self.topic, [Record(b"x")] * count, ProducerOptions(), partition)

    def join(self) -> None:
        """Both share the partitions, and have committed all records."""
        self.members = [self._driver.join_group(self.group, self.topic, self._options) for _ in range(2)]
        wait_until(self._is_done, "two members share the topic and have read it")

    def _is_done(self) -> bool:
        for member in self.members:
            if member.poll():
                member.commit()
        shares = sorted(len(member.assignment()) for member in self.members)
        return shares == [PARTITIONS // 2] * 2 and self.committed() == {RECORDS}

    def committed(self, group: str = "") -> set[int | None]:
        """By the group of the two, or by another one."""
        places = range(PARTITIONS)
        return {self._driver.committed_offset(group or self.group, self.topic, partition) for partition in places}

    def leave(self) -> None:
        while self.members:
            self.members.pop().close()

    def close(self) -> None:
        self.leave()
        self._driver.close()

    def command(self, *arguments: str) -> str:
        return self._box.run(COMMAND, *arguments, "--group", self.group)

    def rows(self, *arguments: str) -> list[list[str]]:
        """The lines that the tool prints of the group, in columns."""
        printed = self.command("--describe", *arguments)
        return [line.split() for line in printed.splitlines() if line.startswith(f"{self.group} ")]


@contextmanager
def readers(box: ToolBox, name: str, *, is_assigned_by_broker: bool = False) -> Iterator[Readers]:
    found = Readers(box, name, is_assigned_by_broker=is_assigned_by_broker)
    try:
        found.prepare()
        found.join()
        yield found
    finally:
        found.close()


def partitions_of_member(line: str, topic: str) -> list[int]:
    """As 3.9 prints them, without the topic, or 4.3, which may add what the member should have."""
    match = re.search(rf"(?:{topic}:|\()([\d,]+)", line)
    return [int(partition) for partition in match[1].split(",")] if match else []


def check_described(read: Readers) -> None:
    read.produce(0, 5)
    rows = read.rows()
    assert sorted((row[2], row[3], row[4], row[5]) for row in rows) == [
        (str(partition), str(RECORDS), str(RECORDS + 5 * (partition == 0)), str(5 * (partition == 0)))
        for partition in range(PARTITIONS)
    ], rows
    assert len({row[6] for row in rows}) == 2, "two members own the partitions"
    assert {row[7] for row in rows} == {"/127.0.0.1"}
    members = read.rows("--members", "--verbose")
    assert len(members) == 2, members
    owned = [partition for row in members for partition in partitions_of_member(" ".join(row), read.topic)]
    assert sorted(owned) == list(range(PARTITIONS)), members
    [state] = read.rows("--state")
    assert "Stable" in state, state
    assert state[-1] == "2", state


@tool("kafka-consumer-groups --list, --describe, --members --verbose, --state")
def describes_groups(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "described") as read:
        check_described(read)
        assert read.group in box.run(COMMAND, "--list").split()
        assert re.search(rf"{read.group}\s+Stable", box.run(COMMAND, "--list", "--state", "Stable"))
        assert read.group not in box.run(COMMAND, "--list", "--state", "Empty")
        assert re.search(rf"{read.group}\s+Classic", box.run(COMMAND, "--list", "--type", "classic"))
        assert read.group not in box.run(COMMAND, "--list", "--type", "consumer")
        read.leave()
        wait_until(lambda: "Empty" in read.rows("--state")[0], "the group is empty")
        assert {row[6] for row in read.rows()} == {"-"}
        assert read.group in box.run(COMMAND, "--describe", "--all-groups")


@tool("kafka-consumer-groups --describe of a consumer group (KIP-848)")
def describes_consumer_groups(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "assigned", is_assigned_by_broker=True) as read:
        wait_until(lambda: "Stable" in read.rows("--state")[0], "the group is stable")
        check_described(read)
        assert re.search(rf"{read.group}\s+Consumer", box.run(COMMAND, "--list", "--type", "consumer"))


@tool("kafka-groups --list", KAFKA_4)
def lists_groups(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "listed", is_assigned_by_broker=True) as read:
        assert re.search(rf"{read.group}\s+Consumer\s+consumer", box.run("GroupsCommand", "--list"))
        assert read.group in box.run("GroupsCommand", "--list", "--consumer")


@tool("kafka-configs of groups", KAFKA_4)
def configures_groups(box: ToolBox, cluster: TidelogCluster) -> None:
    """A group that nobody has joined yet, of a name that no file could have."""
    of_group = ("--group", f"{box.topic}/any name")
    box.configs("--alter", *of_group, "--add-config", "consumer.session.timeout.ms=60000")
    wait_until(lambda: "timeout.ms=60000" in box.configs("--describe", "--entity-type", "groups"), "it is described")
    every = box.configs("--describe", *of_group, "--all")
    assert "DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000" in every, every
    rejected = outcome_of(lambda: box.configs("--alter", *of_group, "--add-config", "consumer.session.timeout.ms=1"))
    assert "group.consumer.min.session.timeout.ms" in rejected, rejected
    box.configs("--alter", *of_group, "--delete-config", "consumer.session.timeout.ms")
    wait_until(lambda: "doesn't exist" in box.configs("--describe", *of_group), "nothing is left")


@tool("kafka-consumer-groups --reset-offsets")
def resets_offsets(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "reset") as read:

        def reset(*arguments: str) -> dict[int, int]:
            printed = read.command("--reset-offsets", "--topic", read.topic, *arguments)
            found = re.findall(rf"{read.topic}\s+(\d+)\s+(\d+)", printed)
            return {int(partition): int(offset) for partition, offset in found}

        assert read.committed() == {RECORDS}
        try:
            rejected = reset("--to-earliest", "--execute")
        except AssertionError as error:
            assert "inactive" in str(error), error  # noqa: PT017 - the tool may end with an error, or just say it
        else:
            assert not rejected
        assert read.committed() == {RECORDS}, "a group with members is left alone"
        read.leave()
        wait_until(lambda: "Empty" in read.rows("--state")[0], "the group is empty")
        everywhere = range(PARTITIONS)
        assert reset("--to-earliest", "--dry-run") == dict.fromkeys(everywhere, 0)
        assert read.committed() == {RECORDS}
        assert reset("--to-earliest", "--execute") == dict.fromkeys(everywhere, 0)
        assert read.committed() == {0}
        assert reset("--to-offset", "7", "--execute") == dict.fromkeys(everywhere, 7)
        assert reset("--shift-by", "-2", "--execute") == dict.fromkeys(everywhere, 5)
        assert reset("--to-datetime", "2020-01-01T00:00:00.000", "--execute") == dict.fromkeys(everywhere, 0)
        assert reset("--by-duration", "P3650D", "--execute") == dict.fromkeys(everywhere, 0)
        planned = read.command("--reset-offsets", "--topic", read.topic, "--to-offset", "3", "--export", "--dry-run")
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as plan:
            plan.write("".join(line + "\n" for line in planned.splitlines() if line.startswith(f"{read.topic},")))
            plan.flush()
            assert reset("--from-file", plan.name, "--execute") == dict.fromkeys(everywhere, 3)
        assert read.committed() == {3}
        assert reset("--to-latest", "--execute") == dict.fromkeys(everywhere, RECORDS)
        assert read.committed() == {RECORDS}


@tool("kafka-consumer-groups --delete-offsets, --delete")
def deletes_groups(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "deleted") as read:
        populated = outcome_of(lambda: read.command("--delete"))
        assert "not empty" in populated, populated
        subscribed = outcome_of(lambda: read.command("--delete-offsets", "--topic", read.topic))
        assert "subscribed" in subscribed.lower(), subscribed
        assert read.committed() == {RECORDS}
        read.leave()
        wait_until(lambda: "Empty" in read.rows("--state")[0], "the group is empty")
        read.command("--delete-offsets", "--topic", f"{read.topic}:0,1")
        assert {row[2] for row in read.rows()} == {"2", "3"}
        deleted = read.command("--delete")
        assert "success" in deleted, deleted
        assert read.group not in box.run(COMMAND, "--list").split()
        assert read.committed() == {None}


def outcome_of(run: Callable[[], str]) -> str:
    """What a tool says of something that cannot be: by its output, or by its end."""
    try:
        return run()
    except AssertionError as error:
        return str(error)


@tool("kafka-console-consumer --group")
def consumes_in_a_group(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "console") as read:
        group = f"console-{read.group}"

        def read_lines(count: int) -> None:
            arguments = ("--topic", read.topic, "--group", group, "--from-beginning")
            until = ("--max-messages", str(count), "--timeout-ms", "30000", "--bootstrap-server", box.bootstrap)
            printed = run_tool(box.version, f"{TOOLS}.consumer.ConsoleConsumer", *arguments, *until)
            assert printed.splitlines().count("x") == count, printed[-500:]

        read_lines(PARTITIONS * RECORDS)
        assert read.committed(group) == {RECORDS}
        read.produce(1, 3)
        read_lines(3)
        assert read.committed(group) == {RECORDS, RECORDS + 3}, "it went on where it had ended"


@tool("kafka-console-consumer --include in a consumer group (KIP-848)", KAFKA_4)
def consumes_what_matches(box: ToolBox, cluster: TidelogCluster) -> None:
    """The consumer itself finds the topics that match: when it joins, it knows of none."""
    with readers(box, "included") as read:
        wanted = ("--include", f"{read.topic}.*", "--group", f"including-{read.group}", "--from-beginning")
        protocol = ("--command-property", "group.protocol=consumer", "--bootstrap-server", box.bootstrap)
        until = ("--max-messages", str(PARTITIONS * RECORDS), "--timeout-ms", "30000")
        printed = run_tool(box.version, f"{TOOLS}.consumer.ConsoleConsumer", *wanted, *protocol, *until)
        assert printed.splitlines().count("x") == PARTITIONS * RECORDS, printed[-500:]


@tool("kafka-verifiable-consumer")
def consumes_verifiably(box: ToolBox, cluster: TidelogCluster) -> None:
    with readers(box, "verifiable") as read:
        arguments = ("--topic", read.topic, "--group-id", f"verifiable-{read.group}", "--reset-policy", "earliest")
        count = ("--max-messages", str(PARTITIONS * RECORDS))
        where = ("--bootstrap-server", box.bootstrap)
        printed = run_tool(box.version, f"{TOOLS}.VerifiableConsumer", *arguments, *count, *where)
        events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        consumed = sum(event["count"] for event in events if event["name"] == "records_consumed")
        assert consumed == PARTITIONS * RECORDS, printed[-500:]
        assert all(event["success"] for event in events if event["name"] == "offsets_committed"), printed[-500:]
