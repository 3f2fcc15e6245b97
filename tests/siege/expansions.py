"""Attacks by small requests that make much work: batches that are searched, groups and topics that change all the time.

Topics that an attack needs are its own, and are deleted at its end.
"""

import struct
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count

from tests.siege.attacks import MAX_ELEMENTS, Attacker, attack, names
from tests.siege.costly_arguments import TRANSACTION, at_coordinator
from tests.siege.floods import flood
from tests.siege.wire import Asking, frame
from tidelog.protocol.compression import Codec
from tidelog.protocol.messages import alter_client_quotas
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.record_batch import BatchHeader, assemble
from tidelog.protocol.records import Record, build_batch

SCRAM_SHA_256 = 1
START_MS = 1_700_000_000_000


@contextmanager
def own_topic(attacker: Attacker, name: str, partitions: int, settings: Mapping[str, str]) -> Iterator[Attacker]:
    """A topic for this attack, and the attack on the leader of its first partition."""
    with Asking(attacker.target.address, 60) as asking:
        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        topics = [CreatableTopic(name, partitions, 3, [], configs)]
        asking.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5, CreateTopicsResponse)
        found = asking.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9, MetadataResponse)
        leader = found.topics[0].partitions[0].leader_id
        (address,) = (f"{broker.host}:{broker.port}" for broker in found.brokers if broker.node_id == leader)
        yield Attacker(attacker.target._replace(address=address, topic=name, partition=0))
        asking.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1), 5, DeleteTopicsResponse)


def written(attacker: Attacker, *batches: bytes, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=attacker.target.partition, records=memoryview(batch)) for batch in batches]
    topics = [TopicProduceData(name=attacker.target.topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


def _now_ms() -> int:
    return int(time.time() * 1000)


# -- batches


def _dense_batch(records: int, timestamp: int) -> bytes:
    """Some ten KB that hold millions of records, the last of which is a millisecond later."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = bytearray()
    for first in range(0, records, 10_000):
        piece = bytearray()
        for number in range(first, min(first + 10_000, records)):
            delta = _zigzag(number)
            body = bytes([0, 2 * (number == records - 1)]) + delta + b"\x01\x01\x00"
            piece += bytes([2 * len(body)]) + body
        packed += packer.compress(bytes(piece))
    packed += packer.flush()
    header = BatchHeader(
        base_offset=0, length=0, leader_epoch=-1, magic=2, crc=0, attributes=Codec.GZIP,
        last_offset_delta=records - 1, base_timestamp=timestamp, max_timestamp=timestamp + 1, producer_id=-1,
        producer_epoch=-1, base_sequence=-1, record_count=records,
    )  # fmt: skip
    return bytes(assemble(header, bytes(packed)))


def _zigzag(number: int) -> bytes:
    value, found = number << 1, bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


@attack("searched-bombs", "ListOffsets of the last record of a batch of 600,000 records, on 20 connections")
def _searched_bombs(attacker: Attacker) -> None:
    with own_topic(attacker, "dense", 1, {}) as dense:
        batch = _dense_batch(attacker.scaled(600_000), START_MS)
        with Asking(dense.target.address, 60) as asking:
            asking.ask(written(dense, batch), 9, ProduceResponse)
        search = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic("dense", [ListOffsetsPartition(0, -1, START_MS + 1)])]
        )
        dense.push(dense.connections(20), frame(search, 6), repeat=True, reads=True)


@attack("recompression", "batches of 900 KB to a topic that compresses with gzip as well as it can")
def _recompression(attacker: Attacker) -> None:
    settings = {"compression.type": "gzip", "compression.gzip.level": "9"}
    with own_topic(attacker, "recompressed", 1, settings) as slow:
        value = b"".join(struct.pack(">I", number * 2_654_435_761 % 2**32) for number in range(225_000))
        slow.push(
            slow.connections(5), frame(written(slow, bytes(build_batch([Record(0, _now_ms(), None, value)]))), 9),
            repeat=True, reads=True,
        )  # fmt: skip


@attack("repeated-writes", "Produce that names one partition 2,000 times")
def _repeated_writes(attacker: Attacker) -> None:
    batch = bytes(build_batch([Record(0, _now_ms(), None, b"")]))
    request = written(attacker, *[batch] * attacker.scaled(2_000))
    attacker.ask_repeatedly(request, 9)


@attack("waiting-writes", "100 connections with 500 small acks=all writes each in flight, answers read")
def _waiting_writes(attacker: Attacker) -> None:
    data = frame(written(attacker, bytes(build_batch([Record(0, _now_ms(), None, b"")])), acks=-1), 9)
    attacker.push(attacker.connections(100), data * 500, repeat=True, reads=True)


@attack("flushes", "small writes to a topic that is flushed to disk at each of them")
def _flushes(attacker: Attacker) -> None:
    with own_topic(attacker, "flushed", 1, {"flush.messages": "1"}) as flushed:
        data = frame(written(flushed, bytes(build_batch([Record(0, _now_ms(), None, b"")]))), 9)
        flushed.push(flushed.connections(20), data * 50, repeat=True, reads=True)


@attack("busy-cleaner", "a compacted topic that rolls all the time and is always dirty")
def _busy_cleaner(attacker: Attacker) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1048576"}
    with own_topic(attacker, "dirty", 1, settings) as dirty:

        def write(number: int) -> bytes:
            now = _now_ms()
            records = [Record(n, now, b"%d-%d" % (number % 50, n), b"v" * 100) for n in range(2_000)]
            return frame(written(dirty, bytes(build_batch(records))), 9)

        flood(dirty, 3, write, per_round=5)


@attack("creeping-deletions", "a record written and the log start moved behind it, as often as fits")
def _creeping_deletions(attacker: Attacker) -> None:
    with own_topic(attacker, "crept", 1, {}) as crept:
        delete = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic("crept", [DeleteRecordsPartition(0, -1)])], timeout_ms=1000
        )
        batch = bytes(build_batch([Record(0, _now_ms(), None, b"x")]))
        data = frame(written(crept, batch, acks=-1), 9) + frame(delete, 2)
        crept.push(crept.connections(10), data * 20, repeat=True, reads=True)


# -- groups


def _joining(group_id: str, member_id: str, *topics: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000, topic_partitions=[],
        subscribed_topic_names=topics,
    )  # fmt: skip


@attack("assigned-groups", "new consumer groups, each of which is assigned 2,000 partitions")
def _assigned_groups(attacker: Attacker) -> None:
    with own_topic(attacker, "wide-for-groups", attacker.scaled(2_000), {}):

        def join(number: int) -> bytes:
            return frame(_joining(f"assigned-{number}", "m", "wide-for-groups"), 1)

        flood(attacker, 10, join, per_round=20)


@attack("flapping-subscriptions", "a member of a group of ten that wants 2,000 partitions, then none, by turns")
def _flapping_subscriptions(attacker: Attacker) -> None:
    topic = "wide-for-one-group"
    with own_topic(attacker, topic, attacker.scaled(2_000), {}):
        attacker = at_coordinator(attacker, "flapping")
        with Asking(attacker.target.address, 60) as asking:
            for number in range(10):
                request = _joining("flapping", f"m{number}", topic)
                asking.ask(request, 1, ConsumerGroupHeartbeatResponse)
            for number in count():
                if attacker.is_over:
                    break
                request = _joining("flapping", "m0", topic if number % 2 else "nothing")
                asking.ask(request, 1, ConsumerGroupHeartbeatResponse)


@attack("owned-partitions", "heartbeats of a member that owns 16,000 partitions, it says")
def _owned_partitions(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "owning")
    with Asking(attacker.target.address) as asking:
        request = _joining("owning", "m", attacker.target.topic)
        joined = asking.ask(request, 1, ConsumerGroupHeartbeatResponse)
    owned = [TopicPartitions(topic_id=bytes(16), partitions=list(range(attacker.scaled(MAX_ELEMENTS - 100))))]
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="owning", member_id="m", member_epoch=joined.member_epoch, rebalance_timeout_ms=-1,
        topic_partitions=owned,
    )  # fmt: skip
    attacker.ask_repeatedly(heartbeat, 1)


@attack("many-protocols", "JoinGroup of members with 8,000 assignors each, in new groups")
def _many_protocols(attacker: Attacker) -> None:
    protocols = [JoinGroupRequestProtocol(name, b"") for name in names(attacker.scaled(8_000), 5)]

    def join(number: int) -> bytes:
        request = JoinGroupRequest(
            group_id=f"protocols-{number // 10}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000,
            member_id="", protocol_type="consumer", protocols=protocols,
        )  # fmt: skip
        return frame(request, 3)

    flood(attacker, 10, join, per_round=10)


# -- transactions


def _init(number: int, timeout_ms: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=f"expansion-{number}", transaction_timeout_ms=timeout_ms)


@attack("expiring-transactions", "transactions that are begun and time out after a second, as many as fit")
def _expiring_transactions(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "expansion-1", TRANSACTION)
    with Asking(attacker.target.address, 60) as asking:
        for number in count():
            if attacker.is_over:
                break
            begun = asking.ask(_init(number, 1000), 4, InitProducerIdResponse)
            if begun.error_code == 0:
                _begin(asking, attacker, number, begun)


@attack("fenced-transactions", "InitProducerId of one transactional id whose transaction is open, as often as fits")
def _fenced_transactions(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "expansion-0", TRANSACTION)
    with Asking(attacker.target.address, 60) as asking:
        while not attacker.is_over:
            begun = asking.ask(_init(0, 60_000), 4, InitProducerIdResponse)
            if begun.error_code == 0:
                _begin(asking, attacker, 0, begun)


def _begin(asking: Asking, attacker: Attacker, number: int, begun: InitProducerIdResponse) -> None:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=f"expansion-{number}",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(attacker.target.topic, range(6))],
    )
    asking.ask(request, 3, AddPartitionsToTxnResponse)


# -- topics, settings, pages


@attack("churned-topics", "a topic of ten partitions that is created and deleted, again and again")
def _churned_topics(attacker: Attacker) -> None:
    for number in count():
        if attacker.is_over:
            break
        with own_topic(attacker, f"churned-{number}", 10, {}):
            pass


@attack("written-quotas", "AlterClientQuotas of 200 client ids, which are stored, and removed afterwards")
def _written_quotas(attacker: Attacker) -> None:
    with Asking(attacker.target.address, 60) as asking:
        for is_removed in (False, True):
            ops = [alter_client_quotas.OpData("consumer_byte_rate", 1e9, remove=is_removed)]
            entries = [
                alter_client_quotas.EntryData([alter_client_quotas.EntityData("client-id", name)], ops)
                for name in names(attacker.scaled(200))
            ]
            request = alter_client_quotas.AlterClientQuotasRequest(entries=entries)
            asking.ask(request, 1, alter_client_quotas.AlterClientQuotasResponse)


@attack("written-passwords", "passwords of 200 users, which are stored, and removed afterwards")
def _written_passwords(attacker: Attacker) -> None:
    users = names(attacker.scaled(200))
    upsertions = [ScramCredentialUpsertion(name, SCRAM_SHA_256, 4096, b"s" * 20, b"p" * 32) for name in users]
    deletions = [ScramCredentialDeletion(name, SCRAM_SHA_256) for name in users]
    with Asking(attacker.target.address, 60) as asking:
        for request in (
            AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions),
            AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]),
        ):
            asking.ask(request, 0, AlterUserScramCredentialsResponse)


@attack("all-directories", "DescribeLogDirs of everything, on 10 connections")
def _all_directories(attacker: Attacker) -> None:
    attacker.push(attacker.connections(10), frame(DescribeLogDirsRequest(topics=None), 4), repeat=True, reads=True)


@attack("cursors", "DescribeTopicPartitions from cursors and with limits that make no sense")
def _cursors(attacker: Attacker) -> None:
    topic = attacker.target.topic
    data = b""
    for limit in (-1, 0, 1, 2**31 - 1):
        for cursor in (None, Cursor(topic, 2**31 - 1), Cursor(topic, -5), Cursor("", 0), Cursor("zzz", 0)):
            for topics in ([], [TopicRequest(topic)], [TopicRequest(name) for name in names(200)]):
                request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=limit, cursor=cursor)
                data += frame(request, 0)
    attacker.push(attacker.connections(10), data, repeat=True, reads=True)


@attack("unknown-ids", "fetch sessions of 8,000 topic ids that nobody knows, on 5 connections")
def _unknown_ids(attacker: Attacker) -> None:
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=-1)]
    topics = [
        FetchTopic(topic_id=number.to_bytes(16, "big"), partitions=wanted) for number in range(attacker.scaled(8_000))
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=0, topics=topics)
    attacker.push(attacker.connections(5), frame(request, 15), repeat=True, reads=True)


@attack("scrape-storm", "metrics, scraped by eight threads as fast as they can")
def _scrape_storm(attacker: Attacker) -> None:
    def scrape() -> None:
        while not attacker.is_over:
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://{attacker.target.metrics}/metrics", timeout=5) as page,
            ):
                page.read()

    threads = [threading.Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
