"""Attacks by requests that are large in unusual places, and by state that requests leave behind."""

import struct
import time
from contextlib import suppress
from itertools import count, cycle
from typing import cast

from tests.siege.attacks import ANNOUNCED_BYTES, MAX_ELEMENTS, Attacker, attack, names
from tests.siege.wire import LENGTH_BYTES, Asking, connect, frame
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.fields import Array, FieldType, Nested, Text
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.protocol.records import Record, build_batch
from tidelog.protocol.structs import Request, Struct

PER_ROUND = 200
CONTROL_PLANE = (4, 5, 6, 7)
"""What controllers send. A stranger who knows an epoch could do worse than to fill arrays."""


def filled(kind: type[Struct], version: int, elements: int) -> Struct:
    """One of the kind with so many elements in each of its arrays, and one in each array further inside."""
    made = kind()
    for field in kind.__fields__:
        if isinstance(field.type, Array) and version in field.versions:
            setattr(made, field.name, _elements(field.type.element, version, elements))
    return made


def _elements(element: FieldType, version: int, number: int) -> list[object]:
    if isinstance(element, Nested):
        return [filled(element.struct, version, 1)] * number
    if isinstance(element, Text):
        return list(names(number))
    size_bytes = getattr(element, "size_bytes", 0)
    return [bytes(size_bytes) if size_bytes == 16 else 1] * number


def long_requests(elements: int) -> list[bytes]:
    """One of each API that has arrays, as the newest version has it."""
    found = []
    for key, api in API_KEYS.items():
        version = api.versions.last
        request = filled(api.request, version, elements)
        if key not in CONTROL_PLANE:
            found.append(frame(cast("Request", request), version))
    return found


@attack("long-arrays", "each API with 4,000 elements in each of its arrays, one after the other")
def _long_arrays(attacker: Attacker) -> None:
    for data in cycle(long_requests(attacker.scaled(MAX_ELEMENTS // 4))):
        if attacker.is_over:
            break
        sockets = [connect(attacker.target.address, 5.0) for _ in range(2)]
        Attacker(attacker.target._replace(seconds=0.3)).push(sockets, data, repeat=True, reads=True)
        for each in sockets:
            each.close()


@attack("subscriptions", "ConsumerGroupHeartbeat with 16,000 topics, each in a new group")
def _subscriptions(attacker: Attacker) -> None:
    topics = names(attacker.scaled(MAX_ELEMENTS))
    with Asking(attacker.target.address) as asking:
        for number in count():
            request = _joining(f"subscribed-{number % 10}", f"member-{number}")
            request.subscribed_topic_names = topics
            asking.ask(request, 1, ConsumerGroupHeartbeatResponse)
            if attacker.is_over:
                break


@attack("expressions", "regular expressions that take other engines for ever, each in a new group", is_short=True)
def _expressions(attacker: Attacker) -> None:
    bombs = [
        "(a+)+b",
        "(.*.*.*.*.*)*x",
        "((a|aa|aaa)*)*" * 50,
        "(" * 500 + "a" + ")*" * 500,
        "a{1000}" * 100,
        "(a{1,30}){1,30}" * 20,
        "|".join(f"t{number}.*" for number in range(3500)),
        "[a-z]*" * 3000,
        ".*" * 10_000,
        "\\p{L}" * 2000,
    ]
    with Asking(attacker.target.address) as asking:
        for number in count():
            request = _joining(f"expression-{number}", f"member-{number}")
            request.subscribed_topic_regex = bombs[number % len(bombs)]
            asking.ask(request, 1, ConsumerGroupHeartbeatResponse)
            if attacker.is_over:
                break


def _joining(group_id: str, member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[]
    )


@attack("assignments", "SyncGroup with an assignment of 10 MB, again and again")
def _assignments(attacker: Attacker) -> None:
    with Asking(attacker.target.address) as asking:
        for number in range(attacker.scaled(200)):
            group_id = f"assigned-{number}"
            join = JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                member_id="",
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol("range", b"")],
            )
            joined = asking.ask(join, 3, JoinGroupResponse)
            assigned = [SyncGroupRequestAssignment(joined.member_id, bytes(10_000_000))]
            sync = SyncGroupRequest(
                group_id=group_id,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=assigned,
            )
            asking.ask(sync, 3, SyncGroupResponse)
            if attacker.is_over:
                break
    attacker.hold()


@attack("producer-ids", "batches of producers that were never seen before, as many as fit")
def _producer_ids(attacker: Attacker) -> None:
    number = 0
    sockets = attacker.connections(2)
    while not attacker.is_over and sockets:
        data = bytearray()
        for _ in range(PER_ROUND):
            number += 1
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, b"")], producer_id=number, producer_epoch=0, base_sequence=0
            )
            written = PartitionProduceData(index=attacker.target.partition, records=memoryview(batch))
            topics = [TopicProduceData(name=attacker.target.topic, partition_data=[written])]
            data += frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
        Attacker(attacker.target._replace(seconds=0.3)).push(sockets[:1], bytes(data), reads=True)


@attack("transactional-ids", "InitProducerId, each with a transactional id of its own")
def _transactional_ids(attacker: Attacker) -> None:
    sockets = attacker.connections(20)
    number = 0
    while not attacker.is_over and sockets:
        data = bytearray()
        for _ in range(PER_ROUND):
            number += 1
            request = InitProducerIdRequest(
                transactional_id=f"siege-{number}-{'x' * 200}", transaction_timeout_ms=60_000
            )
            data += frame(request, 4)
        Attacker(attacker.target._replace(seconds=0.5)).push(
            sockets[number // PER_ROUND % len(sockets) :][:1], bytes(data), reads=True
        )


@attack("headers", "a record with 100,000 headers, again and again", is_short=True)
def _headers(attacker: Attacker) -> None:
    record = Record(0, int(time.time() * 1000), None, b"", (("h", b"v"),) * attacker.scaled(100_000))
    written = PartitionProduceData(index=attacker.target.partition, records=memoryview(build_batch([record])))
    topics = [TopicProduceData(name=attacker.target.topic, partition_data=[written])]
    attacker.ask_repeatedly(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)


@attack("strange-frames", "frames of length 0, of negative length, and of other protocols", is_short=True)
def _strange_frames(attacker: Attacker) -> None:
    beginnings = [
        bytes(LENGTH_BYTES) * 1000,
        struct.pack(">i", -1) * 10,
        struct.pack(">i", -(2**31)),
        struct.pack(">i", ANNOUNCED_BYTES + 1),
        struct.pack(">i", 2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 100,
        struct.pack(">ihhih", 10, 17, 1, 1, -1) + struct.pack(">ihhih", 10, 36, 2, 1, -1),
        struct.pack(">ihhih", 70_010, 18, 3, 1, -1) + bytes(70_000),
        struct.pack(">ihhih", 30_010, 18, 3, 1, 30_000) + b"c" * 30_000,
    ]
    while not attacker.is_over:
        for data in beginnings:
            with suppress(OSError), connect(attacker.target.address, 2.0) as connection:
                connection.sendall(data)
