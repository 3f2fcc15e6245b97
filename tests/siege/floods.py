"""Attacks by repetition: connections, new names and groups without end, and one resource named thousands of times."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from tests.siege.attacks import (
    ANNOUNCED_BYTES,
    BIGGEST,
    CONFIG_OF_TOPIC,
    MAX_ELEMENTS,
    Attacker,
    attack,
    names,
)
from tests.siege.strange_attacks import CONTROL_PLANE
from tests.siege.wire import LENGTH_BYTES, Asking, connect, frame
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.header import request_header
from tidelog.protocol.messages import alter_configs, describe_producers, incremental_alter_configs
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.structs import Request

MAX_TEXT = 32_767
MAX_TIMESTAMP_SEARCH = -3
ROUND_S = 0.3
CREATED_TOPICS = 1000
DELETED_AT_ONCE = 500


def flood(attacker: Attacker, connections: int, make: Callable[[int], bytes], per_round: int = 200) -> None:
    """Requests that all differ, pipelined on several connections, answers read."""
    sockets = attacker.connections(connections)
    number = 0
    while not attacker.is_over and sockets:
        data = bytearray()
        for _ in range(attacker.scaled(per_round)):
            number += 1
            data += make(number)
        each = sockets[number % len(sockets)]
        Attacker(attacker.target._replace(seconds=ROUND_S)).push([each], bytes(data), reads=True)


# -- connections


@attack("connection-storm", "connections that are opened and reset as fast as eight threads can")
def _connection_storm(attacker: Attacker) -> None:
    def storm() -> None:
        while not attacker.is_over:
            with suppress(OSError), connect(attacker.target.address, 2.0) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    threads = [threading.Thread(target=storm) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@attack("much-silence", "6,000 connections that say nothing")
def _much_silence(attacker: Attacker) -> None:
    sockets = attacker.connections(6000)
    attacker.hold()
    del sockets


@attack("wrong-protocol", "500 connections at a time that begin with TLS, HTTP/2, SSH or noise")
def _wrong_protocol(attacker: Attacker) -> None:
    beginnings = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        bytes(64),
        b"\xff" * 64,
    ]
    while not attacker.is_over:
        for number, each in enumerate(attacker.connections(500)):
            with suppress(OSError):
                each.sendall(beginnings[number % len(beginnings)])
            each.close()


@attack("many-half-frames", "6,000 connections with 8 KB each of a frame announced as 100 MB")
def _many_half_frames(attacker: Attacker) -> None:
    sockets = attacker.connections(6000)
    attacker.push(sockets, ANNOUNCED_BYTES.to_bytes(LENGTH_BYTES, "big") + bytes(8_000))
    attacker.hold()


# -- new names without end


@attack("invalid-names", "Metadata that would create 1,000 topics whose names are invalid, again and again")
def _invalid_names(attacker: Attacker) -> None:
    wanted = [MetadataRequestTopic(name=f"no topic {name}") for name in names(attacker.scaled(1000))]
    attacker.ask_repeatedly(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)


@attack("refused-topics", "CreateTopics of 10,000 topics with more replicas than there are brokers")
def _rejected_topics(attacker: Attacker) -> None:
    topics = [CreatableTopic(name, 1, 100, [], []) for name in names(attacker.scaled(10_000))]
    attacker.ask_repeatedly(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)


@attack("topic-assignments", "CreateTopics that only checks a topic with the replicas of 4,000 partitions")
def _topic_assignments(attacker: Attacker) -> None:
    assignments = [
        CreatableReplicaAssignment(index, [1 + index % 3, 1 + (index + 1) % 3])
        for index in range(attacker.scaled(MAX_ELEMENTS // 4))
    ]
    topics = [CreatableTopic("assigned", -1, -1, assignments, [])]
    attacker.ask_repeatedly(CreateTopicsRequest(topics=topics, validate_only=True), 5)


@attack("replica-lists", "CreateTopics that only checks a partition with 15,000 replicas")
def _replica_lists(attacker: Attacker) -> None:
    assignments = [CreatableReplicaAssignment(0, range(attacker.scaled(15_000)))]
    topics = [CreatableTopic("assigned", -1, -1, assignments, [])]
    attacker.ask_repeatedly(CreateTopicsRequest(topics=topics, validate_only=True), 5)


@attack("new-groups", "JoinGroup, each in a new group, as many as fit")
def _new_groups(attacker: Attacker) -> None:
    def join(number: int) -> bytes:
        return frame(
            JoinGroupRequest(
                group_id=f"flood-{number}", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
                protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", b"m" * 100)],
            ),
            3,
        )  # fmt: skip

    flood(attacker, 20, join)


@attack("new-coordinators", "FindCoordinator, each of a new group, as many as fit")
def _new_coordinators(attacker: Attacker) -> None:
    flood(attacker, 20, lambda number: frame(FindCoordinatorRequest(key=f"flood-{number}"), 3), per_round=2000)


@attack("new-producer-ids", "InitProducerId without end, as many as fit")
def _new_producer_ids(attacker: Attacker) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    attacker.push(attacker.connections(20), frame(request, 4) * 500, repeat=True, reads=True)


@attack("long-names", "topics, groups and transactional ids with names of 32 KB")
def _long_names(attacker: Attacker) -> None:
    name = "n" * MAX_TEXT
    requests: list[tuple[Request, int]] = [
        (MetadataRequest(topics=[MetadataRequestTopic(name=name)] * 20, allow_auto_topic_creation=True), 9),
        (FindCoordinatorRequest(coordinator_keys=[name] * 20), 4),
        (InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4),
        (CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1, [], [])] * 20), 5),
        (
            JoinGroupRequest(
                group_id=name, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id=name,
                protocol_type=name, protocols=[JoinGroupRequestProtocol(name, b"")],
            ),
            5,
        ),
    ]  # fmt: skip
    data = b"".join(frame(request, version) for request, version in requests)
    attacker.push(attacker.connections(5), data, repeat=True, reads=True)


# -- lengths that are not true


@attack("lies-everywhere", "each API in each version with lengths of two billion at its beginning", is_short=True)
def _lies_everywhere(attacker: Attacker) -> None:
    lengths = [
        b"\xff\xff\xff\xff\x07",
        BIGGEST.to_bytes(4, "big"),
        b"\x00\x00" + BIGGEST.to_bytes(4, "big"),
        b"\x7f\xff",
    ]
    frames = []
    for key, api in API_KEYS.items():
        if key in CONTROL_PLANE:
            continue
        for version in range(api.versions.first, api.versions.last + 1):
            for length in lengths:
                body = request_header(key, version, 1, "lies") + length * 20
                frames.append(len(body).to_bytes(LENGTH_BYTES, "big") + body)
    for number in count():
        if attacker.is_over:
            break
        with suppress(OSError), connect(attacker.target.address, 2.0) as connection:
            connection.sendall(frames[number % len(frames)])


# -- one resource, thousands of times


@attack(
    "repeated-topics", "DescribeTopicPartitions, DescribeLogDirs and DescribeProducers of one topic, 3,000 times each"
)
def _repeated_topics(attacker: Attacker) -> None:
    topic, times = attacker.target.topic, attacker.scaled(3000)
    partitions = [attacker.target.partition]
    data = (
        frame(DescribeTopicPartitionsRequest(topics=[TopicRequest(topic)] * times), 0)
        + frame(DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic, partitions)] * times), 4)
        + frame(
            describe_producers.DescribeProducersRequest(
                topics=[describe_producers.TopicRequest(topic, partitions)] * times
            ),
            0,
        )
    )
    attacker.push(attacker.connections(3), data, repeat=True, reads=True)


@attack("one-partition-fetched", "Fetch that names one partition 8,000 times")
def _one_partition_fetched(attacker: Attacker) -> None:
    wanted = FetchPartition(
        partition=attacker.target.partition, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-1
    )
    topics = [FetchTopic(topic=attacker.target.topic, partitions=[wanted] * attacker.scaled(8_000))]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, topics=topics)
    attacker.ask_repeatedly(request, 12)


@attack("too-many-fetched", "Fetch that names one partition 100,000 times, more than a request may")
def _too_many_fetched(attacker: Attacker) -> None:
    wanted = FetchPartition(
        partition=attacker.target.partition, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-1
    )
    topics = [FetchTopic(topic=attacker.target.topic, partitions=[wanted] * attacker.scaled(100_000))]
    data = frame(FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics), 12)
    while not attacker.is_over:
        Attacker(attacker.target._replace(seconds=ROUND_S)).push(attacker.connections(3), data, reads=True)


@attack("deleted-records", "DeleteRecords that names one partition 8,000 times")
def _deleted_records(attacker: Attacker) -> None:
    wanted = [DeleteRecordsPartition(attacker.target.partition, 1)] * attacker.scaled(8_000)
    topics = [DeleteRecordsTopic(attacker.target.topic, wanted)]
    attacker.ask_repeatedly(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)


@attack("altered-configs", "AlterConfigs and IncrementalAlterConfigs that name one topic 3,000 times")
def _altered_configs(attacker: Attacker) -> None:
    topic, times = attacker.target.topic, attacker.scaled(3000)
    replaced = [
        alter_configs.AlterConfigsResource(
            CONFIG_OF_TOPIC, topic, [alter_configs.AlterableConfig("retention.ms", "604800000")]
        )
    ]
    changed = [
        incremental_alter_configs.AlterConfigsResource(
            CONFIG_OF_TOPIC, topic, [incremental_alter_configs.AlterableConfig("retention.ms", 0, "604800000")]
        )
    ]
    data = frame(alter_configs.AlterConfigsRequest(resources=replaced * times), 2) + frame(
        incremental_alter_configs.IncrementalAlterConfigsRequest(resources=changed * times), 1
    )
    attacker.push(attacker.connections(3), data, repeat=True, reads=True)


@attack("repeated-settings", "IncrementalAlterConfigs that sets one setting of one topic 8,000 times, by turns")
def _repeated_settings(attacker: Attacker) -> None:
    values = ("604800000", "604800001")
    configs = [
        incremental_alter_configs.AlterableConfig("retention.ms", 0, values[number % 2])
        for number in range(attacker.scaled(8000))
    ]
    resources = [
        incremental_alter_configs.AlterConfigsResource(CONFIG_OF_TOPIC, attacker.target.topic, configs),
    ]
    attacker.ask_repeatedly(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=resources), 1)


@attack("changed-settings", "IncrementalAlterConfigs of one setting, another value each time, as many as fit")
def _changed_settings(attacker: Attacker) -> None:
    def change(number: int) -> bytes:
        config = incremental_alter_configs.AlterableConfig("retention.ms", 0, str(604_800_000 + number))
        resource = incremental_alter_configs.AlterConfigsResource(CONFIG_OF_TOPIC, attacker.target.topic, [config])
        return frame(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource]), 1)

    flood(attacker, 5, change)


@attack("offsets-of-unknown", "OffsetFetch of one partition of each of 7,000 unknown topics")
def _offsets_of_unknown(attacker: Attacker) -> None:
    topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names(attacker.scaled(7_000))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    attacker.ask_repeatedly(request, 8)


@attack("deep-searches", "20 connections with 5,000 ListOffsets of the largest timestamp each, answers read")
def _deep_searches(attacker: Attacker) -> None:
    wanted = [ListOffsetsPartition(attacker.target.partition, -1, MAX_TIMESTAMP_SEARCH)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(attacker.target.topic, wanted)])
    attacker.push(attacker.connections(20), frame(request, 7) * attacker.scaled(5000), repeat=True, reads=True)


# -- topics that stay for a while: their deletion is only begun


def _delete(attacker: Attacker, created: list[str]) -> None:
    with Asking(attacker.target.address, 60) as asking:
        for first in range(0, len(created), DELETED_AT_ONCE):
            request = DeleteTopicsRequest(topic_names=created[first : first + DELETED_AT_ONCE], timeout_ms=1)
            asking.ask(request, 5, DeleteTopicsResponse)


@attack("topics-by-metadata", "Metadata of 1,000 new topics, which are created, and deleted afterwards")
def _topics_by_metadata(attacker: Attacker) -> None:
    created = [f"by-metadata-{name}" for name in names(attacker.scaled(CREATED_TOPICS))]
    wanted = [MetadataRequestTopic(name=name) for name in created]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    Attacker(attacker.target).ask_repeatedly(request, 9, connections=1)
    _delete(attacker, created)


@attack("created-topics", "CreateTopics of 1,000 new topics in one request; they are deleted afterwards")
def _created_topics(attacker: Attacker) -> None:
    created = [f"created-{name}" for name in names(attacker.scaled(CREATED_TOPICS))]
    topics = [CreatableTopic(name, 1, 3, [], []) for name in created]
    with Asking(attacker.target.address, 60) as asking:
        asking.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5, CreateTopicsResponse)
    attacker.hold()
    _delete(attacker, created)
