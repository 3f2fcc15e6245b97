"""Attacks by the most costly arguments of requests that are rarely sent, and by state that grows step by step."""

import struct
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from tests.siege.attacks import MAX_ELEMENTS, Attacker, attack, names
from tests.siege.floods import flood
from tests.siege.wire import Asking, connect, frame
from tidelog.protocol.checksums import crc32c
from tidelog.protocol.compression import Codec
from tidelog.protocol.header import request_header
from tidelog.protocol.messages import describe_producers
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.record_batch import CRC_START, HEADER_BYTES, LENGTH_OVERHEAD_BYTES
from tidelog.protocol.records import Record, build_batch

PREFERRED = 0
GROUP, TRANSACTION = 0, 1
COORDINATOR_ATTEMPTS = 50


def at_coordinator(attacker: Attacker, key: str, key_type: int = GROUP) -> Attacker:
    """The same attack on the broker that coordinates this group or transactional id."""
    request = FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)
    with Asking(attacker.target.address) as asking:
        for _ in range(COORDINATOR_ATTEMPTS):
            (found,) = asking.ask(request, 4, FindCoordinatorResponse).coordinators
            if found.error_code == 0:
                return Attacker(attacker.target._replace(address=f"{found.host}:{found.port}"))
            time.sleep(0.2)
    raise AssertionError(f"{key} has no coordinator: error {found.error_code}")


# -- all partitions, in one request


@attack("epochs", "OffsetForLeaderEpoch of 16,000 partitions, most of which do not exist", is_short=True)
def _epochs(attacker: Attacker) -> None:
    wanted = [OffsetForLeaderPartition(index, -1, 0) for index in range(attacker.scaled(MAX_ELEMENTS))]
    topics = [OffsetForLeaderTopic(attacker.target.topic, wanted)]
    attacker.ask_repeatedly(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 4)


@attack("elections", "ElectLeaders of 16,000 partitions that do not exist, and of all that do")
def _elections(attacker: Attacker) -> None:
    topics = [ElectLeadersTopic("none", range(attacker.scaled(MAX_ELEMENTS)))]
    data = frame(ElectLeadersRequest(PREFERRED, topics, 1000), 2) + frame(ElectLeadersRequest(PREFERRED, None, 1000), 2)
    attacker.push(attacker.connections(3), data, repeat=True, reads=True)


@attack("reassignments", "AlterPartitionReassignments of 8,000 partitions to brokers that do not exist")
def _reassignments(attacker: Attacker) -> None:
    partitions = [ReassignablePartition(index, [7, 8, 9]) for index in range(attacker.scaled(MAX_ELEMENTS // 2))]
    topics = [ReassignableTopic(attacker.target.topic, partitions)]
    attacker.ask_repeatedly(AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics), 0)


@attack("cancelled-reassignments", "AlterPartitionReassignments that cancels what is not under way, 16,000 times")
def _cancelled_reassignments(attacker: Attacker) -> None:
    partitions = [ReassignablePartition(index, None) for index in range(attacker.scaled(MAX_ELEMENTS))]
    topics = [ReassignableTopic(attacker.target.topic, partitions)]
    attacker.ask_repeatedly(AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=topics), 0)


@attack("moved-directories", "AlterReplicaLogDirs of one partition, 16,000 times, to directories that do not exist")
def _moved_directories(attacker: Attacker) -> None:
    topics = [AlterReplicaLogDirTopic(attacker.target.topic, [attacker.target.partition] * attacker.scaled(8_000))]
    dirs = [AlterReplicaLogDir("/nowhere/at/all", topics), AlterReplicaLogDir("/else", topics)]
    attacker.ask_repeatedly(AlterReplicaLogDirsRequest(dirs=dirs), 2)


@attack("more-partitions", "CreatePartitions that only checks topics with up to two billion partitions")
def _more_partitions(attacker: Attacker) -> None:
    counts = [10_000, 9_999, 2**31 - 1, -1, 1]
    data = b"".join(
        frame(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(attacker.target.topic, number, None)], timeout_ms=1000, validate_only=True
            ),
            3,
        )
        for number in counts
    )
    attacker.push(attacker.connections(3), data * 20, repeat=True, reads=True)


@attack("many-assignments", "CreateTopics that only checks a topic with 100,000 assignments, more than a request may")
def _many_assignments(attacker: Attacker) -> None:
    assignments = [CreatableReplicaAssignment(index, [1, 2, 3]) for index in range(attacker.scaled(100_000))]
    request = CreateTopicsRequest(topics=[CreatableTopic("assigned", -1, -1, assignments, [])], validate_only=True)
    data = frame(request, 5)
    while not attacker.is_over:
        Attacker(attacker.target._replace(seconds=0.3)).push(attacker.connections(3), data, reads=True)


@attack("wide-topics", "CreateTopics that only checks 16 topics of 9,999 partitions each")
def _wide_topics(attacker: Attacker) -> None:
    topics = [CreatableTopic(name, 9_999, 3, [], []) for name in names(16)]
    attacker.ask_repeatedly(CreateTopicsRequest(topics=topics, validate_only=True), 5)


@attack("one-wide-topic", "CreateTopics of a topic with 2,000 partitions, deleted afterwards")
def _one_wide_topic(attacker: Attacker) -> None:
    with Asking(attacker.target.address, 60) as asking:
        topics = [CreatableTopic("wide", attacker.scaled(2_000), 3, [], [])]
        asking.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5, CreateTopicsResponse)
        attacker.hold()
        asking.ask(DeleteTopicsRequest(topic_names=["wide"], timeout_ms=1), 5, DeleteTopicsResponse)


@attack("producers-of-all", "DescribeProducers of 16,000 partitions, most of which do not exist")
def _producers_of_all(attacker: Attacker) -> None:
    wanted = [describe_producers.TopicRequest(attacker.target.topic, range(attacker.scaled(MAX_ELEMENTS)))]
    attacker.ask_repeatedly(describe_producers.DescribeProducersRequest(topics=wanted), 0)


# -- groups


@attack("offsets-of-groups", "OffsetFetch of all offsets of one group that is named 16,000 times")
def _offsets_of_groups(attacker: Attacker) -> None:
    partitions = [OffsetCommitRequestPartition(index, 1, -1, "m" * 100) for index in range(6)]
    commit = OffsetCommitRequest(
        group_id="much", topics=[OffsetCommitRequestTopic(name=attacker.target.topic, partitions=partitions)]
    )
    attacker = at_coordinator(attacker, "much")
    Attacker(attacker.target._replace(seconds=0.3)).push(attacker.connections(1), frame(commit, 8), reads=True)
    groups = [OffsetFetchRequestGroup(group_id="much", topics=None)] * attacker.scaled(MAX_ELEMENTS)
    attacker.ask_repeatedly(OffsetFetchRequest(groups=groups), 8)


@attack("many-members", "JoinGroup of 10,000 members in one group, 10 KB of metadata each")
def _many_members(attacker: Attacker) -> None:
    _join_crowd(attacker, "crowd", 1000)


@attack("small-members", "JoinGroup of 10,000 members in one group, 10 bytes of metadata each")
def _small_members(attacker: Attacker) -> None:
    _join_crowd(attacker, "crowd-of-small-members", 1)


def _join_crowd(attacker: Attacker, group_id: str, times: int) -> None:
    def join(number: int) -> bytes:
        return frame(
            JoinGroupRequest(
                group_id=group_id, session_timeout_ms=10_000, rebalance_timeout_ms=60_000, member_id="",
                protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"%010d" % number * times)],
            ),
            3,
        )  # fmt: skip

    attacker = at_coordinator(attacker, group_id)
    sockets = attacker.connections(2000)
    for number in range(attacker.scaled(10_000)):
        if attacker.is_over:
            break
        each = sockets[number % len(sockets)]
        each.settimeout(0.2)
        with suppress(OSError):
            each.sendall(join(number))
    attacker.hold()


@attack("many-consumers", "ConsumerGroupHeartbeat of members without end that join one group")
def _many_consumers(attacker: Attacker) -> None:
    def join(number: int) -> bytes:
        return frame(
            ConsumerGroupHeartbeatRequest(
                group_id="crowd-of-consumers", member_id=f"member-{number}", member_epoch=0,
                rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_names=[attacker.target.topic],
            ),
            1,
        )  # fmt: skip

    flood(at_coordinator(attacker, "crowd-of-consumers"), 20, join)


@attack("leaving-members", "LeaveGroup of 16,000 members who are in no group")
def _leaving_members(attacker: Attacker) -> None:
    members = [MemberIdentity(member_id=name) for name in names(attacker.scaled(MAX_ELEMENTS))]
    at_coordinator(attacker, "g").ask_repeatedly(LeaveGroupRequest(group_id="g", members=members), 4)


@attack("deleted-groups", "DeleteGroups of 16,000 groups that do not exist")
def _deleted_groups(attacker: Attacker) -> None:
    attacker.ask_repeatedly(DeleteGroupsRequest(groups_names=names(attacker.scaled(MAX_ELEMENTS))), 2)


@attack("deleted-offsets", "OffsetDelete of 16,000 partitions, most of which do not exist")
def _deleted_offsets(attacker: Attacker) -> None:
    partitions = [OffsetDeleteRequestPartition(index) for index in range(attacker.scaled(MAX_ELEMENTS))]
    topics = [OffsetDeleteRequestTopic(attacker.target.topic, partitions)]
    at_coordinator(attacker, "g").ask_repeatedly(OffsetDeleteRequest(group_id="g", topics=topics), 0)


def _coordinated_here(attacker: Attacker, group_ids: Sequence[str]) -> list[str]:
    """Those of the groups that the attacked broker coordinates: the others would be refused."""
    with Asking(attacker.target.address, 60) as asking:
        found = asking.ask(FindCoordinatorRequest(coordinator_keys=group_ids), 4, FindCoordinatorResponse)
    return [each.key for each in found.coordinators if f"{each.host}:{each.port}" == attacker.target.address]


@attack("listed-groups", "ListGroups with 16,000 filters, after as many groups were made as fit into half the time")
def _listed_groups(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "listed-1")
    group_ids = _coordinated_here(attacker, [f"listed-{number}" for number in range(attacker.scaled(MAX_ELEMENTS))])

    def commit(number: int) -> bytes:
        partitions = [OffsetCommitRequestPartition(0, 1, -1, "")]
        topics = [OffsetCommitRequestTopic(name=attacker.target.topic, partitions=partitions)]
        return frame(OffsetCommitRequest(group_id=group_ids[number % len(group_ids)], topics=topics), 8)

    flood(Attacker(attacker.target._replace(seconds=attacker.target.seconds / 2)), 10, commit)
    data = frame(ListGroupsRequest(states_filter=names(attacker.scaled(MAX_ELEMENTS))), 4)
    attacker.push(attacker.connections(3), data + frame(ListGroupsRequest(), 4), repeat=True, reads=True)


# -- transactions


def _begun(asking: Asking, transactional_id: str) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return asking.ask(request, 4, InitProducerIdResponse)


@attack("wide-transactions", "AddPartitionsToTxn of 16,000 partitions, most of which do not exist")
def _wide_transactions(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "wide", TRANSACTION)
    with Asking(attacker.target.address) as asking:
        begun = _begun(asking, "wide")
    topics = [AddPartitionsToTxnTopic(attacker.target.topic, range(attacker.scaled(MAX_ELEMENTS)))]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="wide",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=topics,
    )
    attacker.ask_repeatedly(request, 3)


@attack("listed-transactions", "ListTransactions with 16,000 filters and a costly expression, after thousands of ids")
def _listed_transactions(attacker: Attacker) -> None:
    def init(number: int) -> bytes:
        request = InitProducerIdRequest(transactional_id=f"{'a' * 200}-{number}", transaction_timeout_ms=60_000)
        return frame(request, 4)

    attacker = at_coordinator(attacker, "wide", TRANSACTION)
    flood(Attacker(attacker.target._replace(seconds=attacker.target.seconds / 2)), 10, init)
    filters = range(attacker.scaled(MAX_ELEMENTS))
    data = frame(ListTransactionsRequest(producer_id_filters=filters), 2)
    data += frame(ListTransactionsRequest(transactional_id_pattern="(a|aa|a.)*b" * 20), 2)
    data += frame(ListTransactionsRequest(), 2)
    attacker.push(attacker.connections(3), data, repeat=True, reads=True)


@attack("described-transactions", "DescribeTransactions of 16,000 transactional ids that do not exist")
def _described_transactions(attacker: Attacker) -> None:
    wanted = names(attacker.scaled(MAX_ELEMENTS))
    attacker.ask_repeatedly(DescribeTransactionsRequest(transactional_ids=wanted), 0)


# -- fetch sessions


def _wanted(first: int, number: int) -> list[FetchPartition]:
    return [
        FetchPartition(partition=first + index, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=-1)
        for index in range(number)
    ]


@attack("wide-sessions", "fetch sessions of 1,000 partitions each by the thousand, none of which is used again")
def _wide_sessions(attacker: Attacker) -> None:
    topics = [FetchTopic(topic=attacker.target.topic, partitions=_wanted(0, attacker.scaled(1000)))]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=0, topics=topics
    )
    attacker.push(attacker.connections(10), frame(request, 12), repeat=True, reads=True)


@attack("forgotten-partitions", "Fetch that forgets 16,000 partitions of a session that does not exist")
def _forgotten_partitions(attacker: Attacker) -> None:
    forgotten = [ForgottenTopic(topic=attacker.target.topic, partitions=range(attacker.scaled(MAX_ELEMENTS)))]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1, session_id=7, session_epoch=7, topics=[],
        forgotten_topics_data=forgotten,
    )  # fmt: skip
    attacker.ask_repeatedly(request, 12)


@attack("false-followers", "Fetch of somebody who says to be a broker that has just registered again, as many as fit")
def _false_followers(attacker: Attacker) -> None:
    def fetch(number: int) -> bytes:
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=1 + number % 3, replica_epoch=2**40 + number),
            max_wait_ms=0, min_bytes=1, max_bytes=1, topics=[],
        )  # fmt: skip
        return frame(request, 15)

    flood(attacker, 20, fetch)


# -- logs of very many segments, and lies about compression


@attack("rolls", "a topic that rolls a segment for every record, written and searched by timestamp")
def _rolls(attacker: Attacker) -> None:
    configs = [CreatableTopicConfig("segment.ms", "1"), CreatableTopicConfig("index.interval.bytes", "0")]
    with Asking(attacker.target.address, 60) as asking:
        topics = [CreatableTopic("rolls", 1, 3, [], configs)]
        asking.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5, CreateTopicsResponse)
        leader = _leader_address(asking, "rolls")
    at_leader = Attacker(attacker.target._replace(address=leader, topic="rolls", partition=0))

    def write(number: int) -> bytes:
        batch = build_batch([Record(0, 1_700_000_000_000 + 10 * number, None, b"")])
        data = PartitionProduceData(index=0, records=memoryview(batch))
        topic_data = [TopicProduceData(name="rolls", partition_data=[data])]
        return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topic_data), 9)

    flood(Attacker(at_leader.target._replace(seconds=attacker.target.seconds / 2)), 5, write)
    wanted = [ListOffsetsPartition(0, -1, 1_700_000_000_000 + 10 * number) for number in range(100)]
    search = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("rolls", wanted)])
    at_leader.push(at_leader.connections(10), frame(search, 6), repeat=True, reads=True)
    with Asking(attacker.target.address, 60) as asking:
        asking.ask(DeleteTopicsRequest(topic_names=["rolls"], timeout_ms=1), 5, DeleteTopicsResponse)


def _leader_address(asking: Asking, topic: str) -> str:
    response = asking.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9, MetadataResponse)
    leader = response.topics[0].partitions[0].leader_id
    (broker,) = (each for each in response.brokers if each.node_id == leader)
    return f"{broker.host}:{broker.port}"


def _compressed(codec: Codec, payload: bytes, records: int) -> bytes:
    """A batch that says it holds so many records, with this payload and a right CRC."""
    batch = bytearray(build_batch([Record(0, 1, None, b"")])[:HEADER_BYTES] + payload)
    struct.pack_into(">i", batch, 8, len(batch) - LENGTH_OVERHEAD_BYTES)
    struct.pack_into(">h", batch, CRC_START, codec)
    struct.pack_into(">i", batch, CRC_START + 2, records - 1)
    struct.pack_into(">i", batch, HEADER_BYTES - 4, records)
    struct.pack_into(">I", batch, CRC_START - 4, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def _lying_payloads() -> list[tuple[Codec, bytes]]:
    zeros = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = zeros.compress(bytes(100_000_000)) + zeros.flush()
    return [
        (Codec.GZIP, bomb),
        (Codec.GZIP, bomb[: len(bomb) // 2]),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00" + b"\xf8" + b"\x01\x00\x00"),  # a window of 3.75 TB
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x03\x00\x10" + b"\x00"),  # a content of 2^64 - 1 bytes
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\x58" + b"\x02\x00\x10\x00" * 5000),  # runs of zeros
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00a"),  # 4 GB
        (Codec.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff" + b"\x00" * 64),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x7c\x40" + b"\xff" * 8 + b"\x00" + b"\x00" * 8),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x70\x73" + b"\xff\xff\xff\x7f" + b"\x00" * 64),
    ]


@attack("lying-compression", "batches of gzip, snappy, lz4 and zstd that announce gigabytes and terabytes")
def _lying_compression(attacker: Attacker) -> None:
    data = b""
    for codec, payload in _lying_payloads():
        for records in (1, 1_000_000):
            batch = memoryview(_compressed(codec, payload, records))
            written = [PartitionProduceData(index=attacker.target.partition, records=batch)]
            topics = [TopicProduceData(name=attacker.target.topic, partition_data=written)]
            data += frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    attacker.push(attacker.connections(5), data, repeat=True, reads=True)


# -- connections


@attack("long-client-ids", "20 connections with requests whose client id is 30 KB and always another")
def _long_client_ids(attacker: Attacker) -> None:
    def ask(number: int) -> bytes:
        body = request_header(ApiVersionsRequest.__api_key__, 0, number, f"{number:030000d}")
        return len(body).to_bytes(4, "big") + body

    flood(attacker, 20, ask, per_round=500)


@attack("pipelined-metrics", "50 connections to the metrics port with 1,000 requests each, pipelined, answers unread")
def _pipelined_metrics(attacker: Attacker) -> None:
    data = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n" * attacker.scaled(1000)
    held = []
    for _ in range(attacker.scaled(50)):
        with suppress(OSError):
            held.append(connect(attacker.target.metrics, 2.0))
    attacker.push(held, data)
    attacker.hold()


@attack("endless-http", "requests to the metrics port with headers that never end")
def _endless_http(attacker: Attacker) -> None:
    for number in count():
        if attacker.is_over:
            break
        with suppress(OSError), connect(attacker.target.metrics, 1.0) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
            for _ in range(200):
                connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 8000))
