"""Attacks on one broker: requests, connections and bytes that no well-behaved client sends.

Each is bounded in number and time, and goes to a loopback address only. To add one, write a function that takes an
`Attacker` and put `@attack(name, description)` above it. `catalogue` has all of them, and runs them.
"""

import random
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, cast

from tests.siege.wire import LENGTH_BYTES, Asking, connect, frame
from tidelog.protocol.header import request_header
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.records import Record, build_batch
from tidelog.protocol.structs import Request

CONFIG_OF_TOPIC = 2
ANNOUNCED_BYTES = 100_000_000
BIGGEST = 2**31 - 1
MAX_ELEMENTS = 16_000
"""Just below what one request may have."""


class Target(NamedTuple):
    address: str
    metrics: str
    topic: str
    partition: int
    """One that the broker leads; it holds some megabytes."""
    seconds: float
    tls: str
    """Address of the TLS listener of the broker."""
    scale: float = 1.0
    """Part of the connections and requests that an attack uses."""


class Attacker:
    """What attacks are made of."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.end_s = time.monotonic() + target.seconds

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end_s

    def scaled(self, count: int) -> int:
        return max(1, int(count * self.target.scale))

    def connections(self, count: int, receive_buffer_bytes: int = 0) -> list[socket.socket]:
        opened = []
        for _ in range(self.scaled(count)):
            with suppress(OSError):  # a broker may turn some away: that is its right
                opened.append(connect(self.target.address, 5.0, receive_buffer_bytes))
            if self.is_over:
                break
        return opened

    def push(self, sockets: Iterable[socket.socket], data: bytes, *, repeat: bool = False, reads: bool = False) -> None:
        """Sends as much as each connection takes, until the end; answers are read, or left where they are."""
        left: dict[socket.socket, int] = {}
        with selectors.DefaultSelector() as selector:
            for each in sockets:
                each.setblocking(False)
                left[each] = 0
                selector.register(each, selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0))
            while left and not self.is_over:
                for key, events in selector.select(0.1):
                    each = cast("socket.socket", key.fileobj)
                    try:
                        if events & selectors.EVENT_READ and not each.recv(1 << 20):
                            raise ConnectionResetError
                        if events & selectors.EVENT_WRITE:
                            left[each] += each.send(memoryview(data)[left[each] :][: 1 << 18])
                    except (BlockingIOError, InterruptedError):
                        continue
                    except OSError:
                        selector.unregister(each)
                        del left[each]
                        continue
                    if left[each] == len(data):
                        if repeat:
                            left[each] = 0
                        elif reads:
                            selector.modify(each, selectors.EVENT_READ)
                        else:
                            selector.unregister(each)

    def hold(self) -> None:
        time.sleep(max(0.0, self.end_s - time.monotonic()))

    def ask_repeatedly(self, request: Request, version: int, connections: int = 3) -> None:
        """Several connections that read their answers, each with the next request under way meanwhile."""
        self.push(self.connections(connections), frame(request, version), repeat=True, reads=True)

    def fetch(self, max_wait_ms: int, *, offset: int = 0, min_bytes: int = 1) -> FetchRequest:
        wanted = FetchPartition(
            partition=self.target.partition,
            fetch_offset=offset,
            partition_max_bytes=50_000_000,
            current_leader_epoch=-1,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=50_000_000,
            topics=[FetchTopic(topic=self.target.topic, partitions=[wanted])],
        )

    def end_offset(self) -> int:
        with Asking(self.target.address) as asking:
            return (
                asking.ask(self.produce(b"one"), 9, ProduceResponse).responses[0].partition_responses[0].base_offset + 1
            )

    def produce(self, value: bytes) -> ProduceRequest:
        batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
        data = PartitionProduceData(index=self.target.partition, records=memoryview(batch))
        return ProduceRequest(
            acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=self.target.topic, partition_data=[data])]
        )


class Attack(NamedTuple):
    name: str
    description: str
    run: Callable[[Attacker], None]
    is_short: bool
    """Also part of the short form."""


ATTACKS: dict[str, Attack] = {}


def attack(
    name: str, description: str, *, is_short: bool = False
) -> Callable[[Callable[[Attacker], None]], Callable[[Attacker], None]]:
    def add(run: Callable[[Attacker], None]) -> Callable[[Attacker], None]:
        ATTACKS[name] = Attack(name, description, run, is_short)
        return run

    return add


def names(count: int, length: int = 12) -> list[str]:
    return [f"{number:0{length}d}" for number in range(count)]


@attack("nothing", "no attack at all: what others wait anyway on this machine", is_short=True)
def _nothing(attacker: Attacker) -> None:
    attacker.hold()


# -- answers much larger than their requests


@attack("configs", "three DescribeConfigs that name one topic 3,000 times, again and again", is_short=True)
def _configs(attacker: Attacker) -> None:
    wanted = [DescribeConfigsResource(CONFIG_OF_TOPIC, attacker.target.topic, None)] * attacker.scaled(3000)
    request = DescribeConfigsRequest(resources=wanted, include_synonyms=True, include_documentation=True)
    attacker.ask_repeatedly(request, 4)


@attack("metadata", "20 connections with 10,000 Metadata each, answers unread", is_short=True)
def _metadata(attacker: Attacker) -> None:
    data = frame(MetadataRequest(topics=None), 9) * attacker.scaled(10_000)
    sockets = attacker.connections(20)
    attacker.push(sockets, data)
    attacker.hold()


@attack("unread-fetches", "300 connections that fetch and never read", is_short=True)
def _unread_fetches(attacker: Attacker) -> None:
    sockets = attacker.connections(300)
    attacker.push(sockets, frame(attacker.fetch(0), 12) * 100)
    attacker.hold()


@attack("small-unread-fetches", "300 connections with 2,000 fetches of one small batch each, never read")
def _small_unread_fetches(attacker: Attacker) -> None:
    request = attacker.fetch(0, offset=attacker.end_offset() - 1)
    sockets = attacker.connections(300, receive_buffer_bytes=4096)
    attacker.push(sockets, frame(request, 12) * 2000)
    attacker.hold()


@attack("api-versions", "50 connections with ApiVersions without end, answers unread")
def _api_versions(attacker: Attacker) -> None:
    sockets = attacker.connections(50)
    attacker.push(sockets, frame(ApiVersionsRequest(), 0) * 1000, repeat=True)
    attacker.hold()


@attack("all-metadata-read", "20 connections with Metadata of all topics without end, answers read")
def _all_metadata(attacker: Attacker) -> None:
    attacker.push(attacker.connections(20), frame(MetadataRequest(topics=None), 9) * 200, repeat=True, reads=True)


# -- requests with very many parts


@attack("many-configs", "DescribeConfigs of 8,000 topics that do not exist", is_short=True)
def _many_configs(attacker: Attacker) -> None:
    wanted = [DescribeConfigsResource(CONFIG_OF_TOPIC, name, None) for name in names(attacker.scaled(8_000))]
    attacker.ask_repeatedly(DescribeConfigsRequest(resources=wanted), 4)


@attack("many-topics", "Metadata of 16,000 topics that do not exist", is_short=True)
def _many_topics(attacker: Attacker) -> None:
    wanted = [MetadataRequestTopic(name=name) for name in names(attacker.scaled(MAX_ELEMENTS))]
    attacker.ask_repeatedly(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 9)


@attack("many-created", "CreateTopics that only checks 8,000 topics")
def _many_created(attacker: Attacker) -> None:
    configs = [CreatableTopicConfig("retention.ms", "1")]
    wanted = [CreatableTopic(name, 1, 1, [], configs) for name in names(attacker.scaled(8_000))]
    attacker.ask_repeatedly(CreateTopicsRequest(topics=wanted, validate_only=True), 5)


@attack("created-with-settings", "CreateTopics that only checks 2,000 topics: answers have all settings of each")
def _created_with_settings(attacker: Attacker) -> None:
    configs = [CreatableTopicConfig("retention.ms", "1")]
    wanted = [CreatableTopic(name, 1, 1, [], configs) for name in names(attacker.scaled(2_000))]
    attacker.ask_repeatedly(CreateTopicsRequest(topics=wanted, validate_only=True), 5, connections=1)


@attack("many-altered", "IncrementalAlterConfigs that only checks 8,000 topics")
def _many_altered(attacker: Attacker) -> None:
    configs = [AlterableConfig("retention.ms", 0, "1")]
    wanted = [AlterConfigsResource(CONFIG_OF_TOPIC, name, configs) for name in names(attacker.scaled(8_000))]
    attacker.ask_repeatedly(IncrementalAlterConfigsRequest(resources=wanted, validate_only=True), 1)


@attack("many-offsets", "ListOffsets of 16,000 partitions, most of which do not exist")
def _many_offsets(attacker: Attacker) -> None:
    wanted = [ListOffsetsPartition(index, -1, -1) for index in range(attacker.scaled(MAX_ELEMENTS))]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(attacker.target.topic, wanted)])
    attacker.ask_repeatedly(request, 6)


@attack("searches", "ListOffsets by timestamp, as many as fit, on 50 connections")
def _searches(attacker: Attacker) -> None:
    wanted = [ListOffsetsPartition(attacker.target.partition, -1, 1)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(attacker.target.topic, wanted)])
    attacker.push(attacker.connections(50), frame(request, 6) * 500, repeat=True, reads=True)


@attack("many-fetched-offsets", "OffsetFetch of 16,000 partitions")
def _many_fetched_offsets(attacker: Attacker) -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=range(attacker.scaled(MAX_ELEMENTS)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    attacker.ask_repeatedly(request, 8)


@attack("many-committed-offsets", "OffsetCommit of 16,000 partitions")
def _many_committed_offsets(attacker: Attacker) -> None:
    wanted = [OffsetCommitRequestPartition(index, 1, -1, "x") for index in range(attacker.scaled(MAX_ELEMENTS))]
    topics = [OffsetCommitRequestTopic(name=attacker.target.topic, partitions=wanted)]
    attacker.ask_repeatedly(OffsetCommitRequest(group_id="g", topics=topics), 8)


@attack("many-coordinators", "FindCoordinator of 16,000 groups")
def _many_coordinators(attacker: Attacker) -> None:
    attacker.ask_repeatedly(FindCoordinatorRequest(coordinator_keys=names(attacker.scaled(MAX_ELEMENTS))), 4)


@attack("many-groups", "DescribeGroups of 16,000 groups")
def _many_groups(attacker: Attacker) -> None:
    attacker.ask_repeatedly(DescribeGroupsRequest(groups=names(attacker.scaled(MAX_ELEMENTS))), 5)


@attack("many-described-topics", "DescribeTopicPartitions of 16,000 topics that do not exist")
def _many_described_topics(attacker: Attacker) -> None:
    wanted = [TopicRequest(name) for name in names(attacker.scaled(MAX_ELEMENTS))]
    attacker.ask_repeatedly(DescribeTopicPartitionsRequest(topics=wanted), 0)


@attack("many-partitions-fetched", "Fetch of 8,000 partitions, most of which do not exist")
def _many_partitions_fetched(attacker: Attacker) -> None:
    wanted = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=-1)
        for index in range(attacker.scaled(8_000))
    ]
    topics = [FetchTopic(topic=attacker.target.topic, partitions=wanted)]
    attacker.ask_repeatedly(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics), 12)


@attack("many-partitions-written", "Produce of 4,000 partitions, most of which do not exist")
def _many_partitions_written(attacker: Attacker) -> None:
    batch = memoryview(build_batch([Record(0, 1, None, b"")]))
    data = [PartitionProduceData(index=10 + index, records=batch) for index in range(attacker.scaled(4_000))]
    topics = [TopicProduceData(name=attacker.target.topic, partition_data=data)]
    attacker.ask_repeatedly(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)


# -- much that waits


@attack("waiting-fetches", "102,200 waiting fetches, woken by one produce after the other", is_short=True)
def _waiting_fetches(attacker: Attacker) -> None:
    end_offset = attacker.end_offset()
    sockets = attacker.connections(200)
    data = frame(attacker.fetch(60_000, offset=end_offset), 12) * 511
    reading = Attacker(attacker.target._replace(seconds=attacker.target.seconds / 3))
    reading.push(sockets, data, reads=True)
    with Asking(attacker.target.address) as asking:
        asking.ask(attacker.produce(b"all of you"), 9, ProduceResponse)
    attacker.push(sockets, b"\0", reads=True)


@attack("expiring-fetches", "waiting fetches that all expire at once, again and again")
def _expiring_fetches(attacker: Attacker) -> None:
    data = frame(attacker.fetch(1000, offset=attacker.end_offset()), 12) * 511
    attacker.push(attacker.connections(200), data, repeat=True, reads=True)


@attack("fetches-of-much", "2,000 fetches that wait for a gigabyte while somebody writes")
def _fetches_of_much(attacker: Attacker) -> None:
    data = frame(attacker.fetch(60_000, offset=attacker.end_offset(), min_bytes=2**30), 12) * 10
    sockets = attacker.connections(200)
    Attacker(attacker.target._replace(seconds=2.0)).push(sockets, data)
    with Asking(attacker.target.address) as asking:
        while not attacker.is_over:
            asking.ask(attacker.produce(b"not enough"), 9, ProduceResponse)


@attack("sessions", "fetch sessions by the thousand, none of which is used again")
def _sessions(attacker: Attacker) -> None:
    request = attacker.fetch(0)
    request.session_id, request.session_epoch, request.max_bytes = 0, 0, 1
    attacker.push(attacker.connections(10), frame(request, 12) * 100, repeat=True, reads=True)


@attack("joins", "JoinGroup with a megabyte of metadata, each in a new group")
def _joins(attacker: Attacker) -> None:
    protocols = [JoinGroupRequestProtocol("range", b"m" * 1_000_000)]
    sockets = attacker.connections(50)
    for number in range(attacker.scaled(400)):
        request = JoinGroupRequest(
            group_id=f"g{number}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
            protocol_type="consumer", protocols=protocols,
        )  # fmt: skip
        Attacker(attacker.target._replace(seconds=0.2)).push(sockets[number % len(sockets) :][:1], frame(request, 3))
        if attacker.is_over:
            break
    attacker.hold()


# -- connections and bytes


@attack("half-frames", "2,000 connections with 17 KB each of a frame announced as 100 MB", is_short=True)
def _half_frames(attacker: Attacker) -> None:
    sockets = attacker.connections(2000)
    attacker.push(sockets, ANNOUNCED_BYTES.to_bytes(LENGTH_BYTES, "big") + bytes(17_000))
    attacker.hold()


@attack("large-half-frames", "300 connections with as much as is taken of a frame announced as 100 MB")
def _large_half_frames(attacker: Attacker) -> None:
    sockets = attacker.connections(300)
    attacker.push(sockets, (ANNOUNCED_BYTES + 1).to_bytes(LENGTH_BYTES, "big") + bytes(ANNOUNCED_BYTES))
    attacker.hold()


@attack("drops", "1,000 connections that send a large request one byte at a time")
def _drops(attacker: Attacker) -> None:
    sockets = attacker.connections(1000)
    data = frame(MetadataRequest(topics=None), 9)
    position = 0
    while not attacker.is_over:
        for each in sockets:
            with suppress(OSError):
                each.send(data[position : position + 1])
        position = (position + 1) % len(data)


@attack("coming-and-going", "connections that are opened and closed in a loop", is_short=True)
def _coming_and_going(attacker: Attacker) -> None:
    while not attacker.is_over:
        with suppress(OSError):
            for each in [connect(attacker.target.address, 2.0) for _ in range(20)]:
                each.close()


@attack("silence", "2,000 connections that say nothing")
def _silence(attacker: Attacker) -> None:
    sockets = attacker.connections(2000)
    attacker.hold()
    del sockets


@attack("lies", "frames that announce arrays, strings and tags of two billion", is_short=True)
def _lies(attacker: Attacker) -> None:
    chance = random.Random(1)
    lengths = [b"\xff\xff\xff\xff\x0f", BIGGEST.to_bytes(4, "big"), b"\x7f\xff", b"\xfe\xff\xff\xff\x07"]
    while not attacker.is_over:
        with suppress(OSError), connect(attacker.target.address, 2.0) as connection:
            for _ in range(20):
                key, version = chance.choice([(0, 9), (1, 12), (3, 9), (9, 8), (19, 5), (32, 4), (11, 6)])
                body = request_header(key, version, 1, "lies") + chance.choice(lengths) + chance.randbytes(2000)
                connection.sendall(len(body).to_bytes(LENGTH_BYTES, "big") + body)


@attack("tags", "requests of 16,000 tagged fields")
def _tags(attacker: Attacker) -> None:
    header = request_header(ApiVersionsRequest.__api_key__, 3, 1, "tags")
    count = attacker.scaled(MAX_ELEMENTS)
    body = header + b"\x02a\x02b" + _varint(count) + b"\x00\x00" * count
    attacker.push(attacker.connections(3), len(body).to_bytes(LENGTH_BYTES, "big") + body, repeat=True, reads=True)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


@attack("metrics", "half-sent requests to the metrics port, 16 at a time", is_short=True)
def _metrics(attacker: Attacker) -> None:
    held: list[socket.socket] = []
    while not attacker.is_over:
        with suppress(OSError):
            held.append(connect(attacker.target.metrics, 2.0))
            held[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        if len(held) > 64:
            held.pop(0).close()
        time.sleep(0.02)
