"""Requests of the benchmark of groups and transactions, decoded by Tidelog's own codecs, and the responses it reads."""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from crc32c import crc32c

from bench import group_load, group_wire, transaction_load, wire
from bench.exchange import NO_LIMIT, Exchange, ask_pipelined
from bench.group_wire import Joined
from bench.wire import Connection
from tidelog.protocol.codec import decode
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.replicated.partition_keys import partition_for

HEADER_BYTES = 4 + 2 + 2 + 4 + 2 + len(wire.CLIENT_ID)
MEMBER = Joined(0, 3, "leader", "member", [])


def body(frame: bytes, *, is_flexible: bool = False) -> bytes:
    return frame[HEADER_BYTES + is_flexible :]


def test_members_join_sync_and_commit_as_the_protocol_has_it() -> None:
    join = decode(JoinGroupRequest, group_wire.JOIN_GROUP_VERSION, body(group_wire.join_group_frame("g", "t")))
    assert (join.group_id, join.member_id, join.protocols[0].name) == ("g", "", "range")
    frame = group_wire.sync_group_frame("g", MEMBER, {"member": group_wire.assignment("t", [1, 2])})
    sync = decode(SyncGroupRequest, group_wire.SYNC_GROUP_VERSION, body(frame))
    assert (sync.generation_id, sync.assignments[0].member_id) == (3, "member")
    frame = group_wire.offset_commit_frame("g", "t", {4: 7}, "member", 3)
    commit = decode(OffsetCommitRequest, group_wire.OFFSET_COMMIT_VERSION, body(frame))
    assert (commit.topics[0].partitions[0].partition_index, commit.topics[0].partitions[0].committed_offset) == (4, 7)


def test_members_of_consumer_groups_join_with_their_topic() -> None:
    version = group_wire.CONSUMER_GROUP_HEARTBEAT_VERSION
    frame = group_wire.consumer_join_frame("g", "t")
    joining = decode(ConsumerGroupHeartbeatRequest, version, body(frame, is_flexible=True))
    assert (joining.member_epoch, joining.subscribed_topic_names, joining.topic_partitions) == (0, ["t"], [])
    frame = group_wire.consumer_heartbeat_frame("g", "member", 5)
    beating = decode(ConsumerGroupHeartbeatRequest, version, body(frame, is_flexible=True))
    assert (beating.member_epoch, beating.subscribed_topic_names, beating.topic_partitions) == (5, None, None)


def test_batches_of_transactions_name_their_producer() -> None:
    batch = wire.transactional(wire.record_batch([b"one"], 5), 77, 2, 9)
    assert struct.unpack_from(">qhi", batch, wire.PRODUCER_ID_AT) == (77, 2, 9)
    (crc,) = struct.unpack_from(">I", batch, wire.CRC_AT)
    assert crc == crc32c(batch[wire.CHECKED_FROM :])
    frame = transaction_load.flexible_produce_frame("t", {1: batch}, "mine")
    request = decode(ProduceRequest, transaction_load.PRODUCE_VERSION_2, body(frame, is_flexible=True))
    assert request.transactional_id == "mine"
    assert bytes(request.topic_data[0].partition_data[0].records or b"") == batch


def test_the_first_error_of_a_produce_is_found() -> None:
    def answer(*errors: int) -> bytes:
        parts = [struct.pack(">ihqqq", index, error, 5, -1, 0) + b"\x01\x00\x00" for index, error in enumerate(errors)]
        topics = wire.compact_array([wire.compact_string("t") + wire.compact_array(parts) + b"\x00"])
        return struct.pack(">i", 1) + b"\x00" + topics + struct.pack(">i", 0) + b"\x00"

    assert transaction_load.flexible_produce_error(answer(0, 0, 0)) == 0
    assert transaction_load.flexible_produce_error(answer(0, 51, 0)) == 51


def test_groups_are_found_in_the_partitions_where_brokers_keep_them() -> None:
    names = [group_load.name_of(group) for group in range(200)]
    assert [group_load.partition_of(name) for name in names] == [partition_for(name, 50) for name in names]
    chosen = [group_load.name_of(group) for group in group_load.group_of_each_partition(1_000)]
    assert sorted(partition_for(name, 50) for name in chosen) == list(range(50))


@contextmanager
def echoing_server(connections: int) -> Iterator[int]:
    """Sends every frame back, in two pieces."""

    def serve(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65_536):
                connection.sendall(data[:5])
                connection.sendall(data[5:])

    def accept() -> None:
        for _ in range(connections):
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,)).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("rate_per_second", [0.0, 2_000.0])
def test_every_connection_gets_its_own_answers_in_order(rate_per_second: float) -> None:
    requests = [[wire.frame(index, number, b"") for number in range(index)] for index in range(4)]
    with echoing_server(4) as port, Exchange([port] * 4) as exchange:
        responses = exchange.ask_all(requests, window=2, rate_per_second=rate_per_second)
    assert responses == [[frame[4:] for frame in frames] for frames in requests]


@pytest.mark.parametrize("window", [1, 2, 5, 100])
def test_a_pipelining_connection_gets_its_answers_in_order(window: int) -> None:
    requests = [wire.frame(7, number, b"") for number in range(23)]
    with echoing_server(1) as port, Connection(port) as connection:
        assert ask_pipelined(connection, requests, window) == [frame[4:] for frame in requests]


class ScriptedExchange(Exchange):
    """Answers every request with itself, but for the first time with a refusal where the test says so."""

    def __init__(self, rejected: set[bytes]) -> None:
        self._rejected = rejected

    def ask_all(
        self, requests: Sequence[Sequence[bytes]], window: int = NO_LIMIT, rate_per_second: float = 0.0
    ) -> list[list[bytes]]:
        responses = [[b"\x10" if each in self._rejected else each for each in asked] for asked in requests]
        self._rejected = set()
        return responses


def test_what_a_coordinator_could_not_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_load, "BACKOFF_S", 0.0)
    requests = [[b"a", b"b"], [b"c"]]
    responses = group_load.ask_patiently(ScriptedExchange({b"b", b"c"}), requests, lambda response: response[0])
    assert responses == requests


class SettlingExchange(Exchange):
    """Three members of one group, over a connection each: the assignment reaches one of them after the others."""

    def __init__(self, epochs: Sequence[Sequence[int]]) -> None:
        self._epochs = iter(epochs)

    def ask_all(
        self, requests: Sequence[Sequence[bytes]], window: int = NO_LIMIT, rate_per_second: float = 0.0
    ) -> list[list[bytes]]:
        return [[self._answer(epoch)] for epoch in next(self._epochs)]

    def _answer(self, epoch: int) -> bytes:
        body = struct.pack(">ih", 0, 0) + wire.compact_string(None) + wire.compact_string("member")
        return bytes(wire.CORRELATION_BYTES + 1) + body + struct.pack(">i", epoch)


def test_consumer_groups_settle_once_all_members_have_what_was_assigned_after_they_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_load, "SETTLING_PAUSE_S", 0.0)
    rounds = [[1, 2, 3], [3, 3, 3], [3, 3, 3], [4, 4, 3], [4, 4, 4]]
    groups = group_load.ConsumerGroups(SettlingExchange(rounds), 3, "t", members_per_group=3, groups=1)
    groups.join()
    groups.settle()
    assert groups.heartbeat_frames(3) == [group_wire.consumer_heartbeat_frame("consumer-group-00000", "member", 4)] * 3
