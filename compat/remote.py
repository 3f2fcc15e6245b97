"""A client of another language behind the suite's interface: a program that is given commands as JSON lines."""

import json
import subprocess
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from tests.clients.driver import (
    TIMEOUT_S,
    ClientDriver,
    ClusterDescription,
    Consumed,
    GroupDescription,
    GroupMember,
    Isolation,
    MemberOptions,
    NamedOffset,
    PartitionDescription,
    ProducerOptions,
    Record,
    Rejected,
    Transactions,
    Writer,
)

RESPONSE_LIMIT_S = 2 * TIMEOUT_S


class ProgramFailed(Exception):
    """The client's program had trouble that is no broker's error code."""


def to_text(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()


def to_bytes(value: str | None) -> bytes | None:
    return None if value is None else b64decode(value)


def encode_record(record: Record) -> dict[str, Any]:
    return {
        "key": to_text(record.key),
        "value": to_text(record.value),
        "headers": [[name, to_text(value)] for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
    }


def decode_consumed(found: Mapping[str, Any]) -> Consumed:
    headers = tuple((name, to_bytes(value)) for name, value in found["headers"])
    key, value = to_bytes(found["key"]), to_bytes(found["value"])
    return Consumed(found["offset"], found["timestamp_ms"], key, value, headers)


class RemoteMember(GroupMember):
    """A consumer in the program, by its name there."""

    def __init__(self, ask: Callable[..., Any], name: str) -> None:
        self._ask = ask
        self.name = name

    def poll(self) -> list[tuple[int, Consumed]]:
        return [(partition, decode_consumed(found)) for partition, found in self._ask("member_poll", member=self.name)]

    def assignment(self) -> frozenset[int]:
        return frozenset(self._ask("member_assignment", member=self.name))

    def commit(self) -> None:
        self._ask("member_commit", member=self.name)

    def close(self) -> None:
        self._ask("member_close", member=self.name)


class RemoteTransactions(Transactions):
    """A transactional producer in the program, by its name there."""

    def __init__(self, ask: Callable[..., Any], name: str, transactional_id: str) -> None:
        self._ask = ask
        self.name = name
        self._transactional_id = transactional_id

    def begin(self) -> None:
        self._ask("transaction_begin", writer=self.name)

    def send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        encoded = [encode_record(record) for record in records]
        self._ask("transaction_send", writer=self.name, topic=topic, partition=partition, records=encoded)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        where = {"group": group, "topic": topic, "partition": partition, "transactional_id": self._transactional_id}
        self._ask("transaction_send_offset", writer=self.name, offset=offset, **where)

    def commit(self) -> None:
        self._ask("transaction_commit", writer=self.name)

    def abort(self) -> None:
        self._ask("transaction_abort", writer=self.name)

    def close(self) -> None:
        self._ask("transaction_close", writer=self.name)


class RemoteDriver(ClientDriver):
    def __init__(self, bootstrap: str, command: Sequence[str]) -> None:
        super().__init__(bootstrap)
        self._command = [*command, bootstrap]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._member_count = 0
        self._writer_count = 0

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        return self._process

    def _ask(self, action: str, **arguments: Any) -> Any:
        with self._lock:
            line = self._exchange(self._running(), json.dumps({"do": action, **arguments}))
        return outcome_of(json.loads(line))

    def _exchange(self, process: subprocess.Popen[str], line: str) -> str:
        """One line out, one line back. A program that died or hangs is ended; the next command starts a new one."""
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(RESPONSE_LIMIT_S, process.kill)
        watchdog.start()
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            response = process.stdout.readline()
        finally:
            watchdog.cancel()
        if not response:
            process.kill()
            _rest, complaint = process.communicate()
            self._process = None
            raise ProgramFailed(f"the program ended or did not answer: {complaint[-1000:]}")
        return response

    def produce(
        self, topic: str, records: Sequence[Record], options: ProducerOptions, partition: int = 0
    ) -> list[int | None]:
        offsets: list[int | None] = self._ask(
            "produce",
            topic=topic,
            partition=partition,
            records=[encode_record(record) for record in records],
            compression=options.compression,
            acks=options.acks,
            idempotent=options.idempotent,
        )
        return offsets

    def consume(
        self, topic: str, partition: int, offset: int, count: int, isolation: Isolation = "read_committed"
    ) -> list[Consumed]:
        where = {"topic": topic, "partition": partition, "offset": offset}
        found = self._ask("consume", count=count, isolation=isolation, **where)
        return [decode_consumed(one) for one in found]

    def consume_in_rack(self, topic: str, partition: int, count: int, rack: str) -> list[Consumed]:
        where = {"topic": topic, "partition": partition, "offset": 0}
        found = self._ask("consume", count=count, isolation="read_committed", rack=rack, **where)
        return [decode_consumed(one) for one in found]

    def list_offset(self, topic: str, partition: int, at: NamedOffset | int) -> int | None:
        offset: int | None = self._ask("list_offset", topic=topic, partition=partition, at=at)
        return offset

    def list_topics(self) -> set[str]:
        return set(self._ask("list_topics"))

    def describe_topic(self, topic: str) -> dict[int, PartitionDescription]:
        return {
            one["partition"]: PartitionDescription(
                one["leader"], tuple(one["replicas"]), tuple(one["in_sync_replicas"])
            )
            for one in self._ask("describe_topic", topic=topic)
        }

    def open_writer(self, topic: str, *, idempotent: bool) -> Writer:
        raise NotImplementedError

    def open_transactions(self, transactional_id: str) -> Transactions:
        self._writer_count += 1
        name = str(self._writer_count)
        self._ask("open_transactions", writer=name, transactional_id=transactional_id)
        return RemoteTransactions(self._ask, name, transactional_id)

    def join_group(self, group: str, topic: str, options: MemberOptions) -> GroupMember:
        self._member_count += 1
        member = RemoteMember(self._ask, str(self._member_count))
        self._ask("join_group", group=group, topic=topic, member=member.name, **asdict(options))
        return member

    def committed_offset(self, group: str, topic: str, partition: int) -> int | None:
        offset: int | None = self._ask("committed_offset", group=group, topic=topic, partition=partition)
        return offset

    def commit_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        self._ask("commit_offset", group=group, topic=topic, partition=partition, offset=offset)

    def list_groups(self) -> set[str]:
        return set(self._ask("list_groups"))

    def describe_group(self, group: str) -> GroupDescription:
        found = self._ask("describe_group", group=group)
        return GroupDescription(found["state"], found["member_count"])

    def delete_group(self, group: str) -> None:
        self._ask("delete_group", group=group)

    def create_topic(
        self, topic: str, partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        self._ask(
            "create_topic", topic=topic, partitions=partitions, configs=dict(configs), validate_only=validate_only
        )

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def create_partitions(self, topic: str, total: int) -> None:
        self._ask("create_partitions", topic=topic, total=total)

    def describe_configs(self, kind: Literal["topic", "broker"], name: str) -> dict[str, str | None]:
        return dict(self._ask("describe_configs", kind=kind, name=name))

    def alter_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._ask("alter_configs", topic=topic, changes=dict(changes))

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("replace_configs", topic=topic, configs=dict(configs))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        low_watermark: int = self._ask("delete_records", topic=topic, partition=partition, before_offset=before_offset)
        return low_watermark

    def describe_cluster(self) -> ClusterDescription:
        found = self._ask("describe_cluster")
        brokers = {int(broker): address for broker, address in found["brokers"].items()}
        return ClusterDescription(found["cluster_id"], found["controller"], brokers)

    def log_dir_sizes(self) -> dict[tuple[str, int], int]:
        return {(topic, partition): size for topic, partition, size in self._ask("log_dir_sizes")}

    def producer_ids(self, topic: str, partition: int) -> dict[int, int]:
        found = self._ask("producer_ids", topic=topic, partition=partition)
        return {int(producer): sequence for producer, sequence in found.items()}

    def page_of_topic_partitions(self, topic: str, limit: int) -> tuple[list[int], int | None]:
        found = self._ask("page_of_topic_partitions", topic=topic, limit=limit)
        return found["partitions"], found["next"]


def outcome_of(response: Mapping[str, Any]) -> Any:
    """The result, or the error that the program reported."""
    if "code" in response:
        raise Rejected(response["code"], response.get("message", ""))
    if "fault" in response:
        raise ProgramFailed(response["fault"])
    return response["result"]
