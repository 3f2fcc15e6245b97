"""Requests of all APIs that clients send, each so that what follows the check of permissions is the same everywhere."""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from compat.answers.requests import subscription
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidelog.protocol.messages.alter_configs import AlterableConfig as LegacyConfig
from tidelog.protocol.messages.alter_configs import AlterConfigsRequest
from tidelog.protocol.messages.alter_configs import AlterConfigsResource as LegacyResource
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
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest
from tidelog.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from tidelog.protocol.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
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
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.messages.sync_group import SyncGroupRequest
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.protocol.records import Record, build_batch
from tidelog.protocol.structs import Request
from tidelog.types import Uuid

TIMEOUT_MS = 10_000
NOW_MS = int(time.time() * 1000)
"""The same for both brokers, and not so old that records are deleted."""
TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of config resources."""


class Names(NamedTuple):
    """What the requests are about. The topic exists, the rest does not."""

    topic: str
    topic_id: Uuid
    missing: str
    group: str
    transactional_id: str


Make = Callable[[Names, int], Request]


def produce(names: Names, _: int) -> Request:
    batch = build_batch([Record(0, NOW_MS, None, b"value", ())])
    data = PartitionProduceData(index=0, records=memoryview(batch))
    topic = TopicProduceData(name=names.topic, topic_id=names.topic_id, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[topic])


def fetch(names: Names, _: int) -> Request:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic=names.topic, topic_id=names.topic_id, partitions=[wanted])
    return FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=-1, topics=[topic]
    )


def join(names: Names, _: int) -> Request:
    """With a session timeout that nobody accepts: what is drawn at random does not come to it."""
    return JoinGroupRequest(
        group_id=names.group,
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", subscription("t"))],
    )


def offset_fetch(names: Names, version: int) -> Request:
    old = [OffsetFetchRequestTopic(name=names.topic, partition_indexes=[0])]
    new = [OffsetFetchRequestTopics(name=names.topic, topic_id=names.topic_id, partition_indexes=[0])]
    if version < 8:
        return OffsetFetchRequest(group_id=names.group, topics=old)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=names.group, topics=new)])


def add_partitions(names: Names, version: int) -> Request:
    topics = [AddPartitionsToTxnTopic(names.topic, [0])]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=names.transactional_id,
            v3_and_below_producer_id=9_999,
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(names.transactional_id, 9_999, 0, verify_only=True, topics=topics)
    return AddPartitionsToTxnRequest(transactions=[transaction])


def txn_offset_commit(names: Names, _: int) -> Request:
    topic = TxnOffsetCommitRequestTopic(names.topic, [TxnOffsetCommitRequestPartition(0, 1, committed_metadata="")])
    return TxnOffsetCommitRequest(
        transactional_id=names.transactional_id, group_id=names.group, producer_id=9_999, topics=[topic]
    )


def offset_commit(names: Names, _: int) -> Request:
    topic = OffsetCommitRequestTopic(
        name=names.topic,
        topic_id=names.topic_id,
        partitions=[OffsetCommitRequestPartition(0, 1, committed_metadata="")],
    )
    return OffsetCommitRequest(
        group_id=names.group, generation_id_or_member_epoch=7, member_id="nobody", topics=[topic]
    )


def consumer_heartbeat(names: Names, _: int) -> Request:
    return ConsumerGroupHeartbeatRequest(
        group_id=names.group, member_id="nobody", member_epoch=7, subscribed_topic_names=[names.topic]
    )


QUESTIONS: Mapping[str, tuple[int, Make]] = {
    "Produce": (0, produce),
    "Fetch": (1, fetch),
    "ListOffsets": (
        2,
        lambda names, _: ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(names.topic, [ListOffsetsPartition(0, timestamp=-2)])]
        ),
    ),
    "Metadata of a topic": (
        3,
        lambda names, version: MetadataRequest(
            topics=[MetadataRequestTopic(name=names.topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= 8,
            include_cluster_authorized_operations=8 <= version <= 10,
        ),
    ),
    "Metadata of a topic that does not exist": (
        3,
        lambda names, _: MetadataRequest(
            topics=[MetadataRequestTopic(name=names.missing)], allow_auto_topic_creation=False
        ),
    ),
    "Metadata of all topics": (
        3,
        lambda _, version: MetadataRequest(
            topics=None if version else [],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= 8,
        ),
    ),
    "OffsetCommit": (8, offset_commit),
    "OffsetFetch": (9, offset_fetch),
    "FindCoordinator of a group": (
        10,
        lambda names, version: FindCoordinatorRequest(key=names.group, key_type=0, coordinator_keys=[names.group]),
    ),
    "FindCoordinator of a transaction": (
        10,
        lambda names, version: FindCoordinatorRequest(
            key=names.transactional_id, key_type=1 if version else 0, coordinator_keys=[names.transactional_id]
        ),
    ),
    "JoinGroup": (11, join),
    "Heartbeat": (12, lambda names, _: HeartbeatRequest(group_id=names.group, generation_id=1, member_id="nobody")),
    "LeaveGroup": (
        13,
        lambda names, _: LeaveGroupRequest(
            group_id=names.group, member_id="nobody", members=[MemberIdentity(member_id="nobody")]
        ),
    ),
    "SyncGroup": (
        14,
        lambda names, _: SyncGroupRequest(
            group_id=names.group,
            generation_id=1,
            member_id="nobody",
            protocol_type="consumer",
            protocol_name="range",
        ),
    ),
    "DescribeGroups": (
        15,
        lambda names, version: DescribeGroupsRequest(groups=[names.group], include_authorized_operations=version >= 3),
    ),
    "ListGroups": (16, lambda _, __: ListGroupsRequest()),
    "CreateTopics": (
        19,
        lambda names, _: CreateTopicsRequest(
            topics=[CreatableTopic(name=names.missing, num_partitions=0, replication_factor=1)],
            timeout_ms=TIMEOUT_MS,
            validate_only=True,
        ),
    ),
    "DeleteTopics": (
        20,
        lambda names, _: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=names.missing)], topic_names=[names.missing], timeout_ms=TIMEOUT_MS
        ),
    ),
    "DeleteRecords": (
        21,
        lambda names, _: DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(names.topic, [DeleteRecordsPartition(0, 0)])], timeout_ms=TIMEOUT_MS
        ),
    ),
    "InitProducerId without a transaction": (
        22,
        lambda _, __: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS),
    ),
    "InitProducerId with a transaction": (
        22,
        lambda names, _: InitProducerIdRequest(transactional_id=names.transactional_id, transaction_timeout_ms=-1),
    ),
    "OffsetForLeaderEpoch": (
        23,
        lambda names, _: OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    names.topic, [OffsetForLeaderPartition(0, current_leader_epoch=-1, leader_epoch=0)]
                )
            ],
        ),
    ),
    "AddPartitionsToTxn": (24, add_partitions),
    "AddOffsetsToTxn": (
        25,
        lambda names, _: AddOffsetsToTxnRequest(
            transactional_id=names.transactional_id, producer_id=9_999, group_id=names.group
        ),
    ),
    "EndTxn": (
        26,
        lambda names, _: EndTxnRequest(transactional_id=names.transactional_id, producer_id=9_999, committed=False),
    ),
    "WriteTxnMarkers": (
        27,
        lambda names, _: WriteTxnMarkersRequest(
            markers=[WritableTxnMarker(9_999, 0, False, [WritableTxnMarkerTopic(names.missing, [0])])]
        ),
    ),
    "TxnOffsetCommit": (28, txn_offset_commit),
    "DescribeAcls": (29, lambda _, __: DescribeAclsRequest(2, "nothing", 3, None, None, 1, 1)),
    "CreateAcls": (
        30,
        lambda _, __: CreateAclsRequest(creations=[AclCreation(4, "no cluster", 3, "User:a", "*", 3, 3)]),
    ),
    "DeleteAcls": (31, lambda _, __: DeleteAclsRequest(filters=[DeleteAclsFilter(2, "nothing", 3, None, None, 1, 1)])),
    "DescribeConfigs of a topic": (
        32,
        lambda names, _: DescribeConfigsRequest(
            resources=[DescribeConfigsResource(TOPIC, names.topic, ["retention.ms"])]
        ),
    ),
    "DescribeConfigs of a broker": (
        32,
        lambda _, __: DescribeConfigsRequest(resources=[DescribeConfigsResource(BROKER, "1", ["num.partitions"])]),
    ),
    "DescribeConfigs of a group": (
        32,
        lambda names, _: DescribeConfigsRequest(
            resources=[DescribeConfigsResource(GROUP, names.group, ["consumer.session.timeout.ms"])]
        ),
    ),
    "AlterConfigs of a topic": (
        33,
        lambda names, _: AlterConfigsRequest(
            resources=[LegacyResource(TOPIC, names.topic, [LegacyConfig("retention.ms", "1000")])], validate_only=True
        ),
    ),
    "AlterReplicaLogDirs": (
        34,
        lambda names, _: AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir("/nowhere", [AlterReplicaLogDirTopic(names.missing, [0])])]
        ),
    ),
    "CreatePartitions": (
        37,
        lambda names, _: CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(names.missing, 2, None)], timeout_ms=TIMEOUT_MS, validate_only=True
        ),
    ),
    "DeleteGroups": (42, lambda names, _: DeleteGroupsRequest(groups_names=[names.group])),
    "ElectLeaders": (
        43,
        lambda names, _: ElectLeadersRequest(
            topic_partitions=[ElectLeadersTopic(names.missing, [0])], timeout_ms=TIMEOUT_MS
        ),
    ),
    "IncrementalAlterConfigs of a topic": (
        44,
        lambda names, _: IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(TOPIC, names.topic, [AlterableConfig("retention.ms", 0, "1000")])],
            validate_only=True,
        ),
    ),
    "IncrementalAlterConfigs of a broker": (
        44,
        lambda _, __: IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(BROKER, "1", [AlterableConfig("log.retention.ms", 0, "1000")])],
            validate_only=True,
        ),
    ),
    "IncrementalAlterConfigs of a group": (
        44,
        lambda names, _: IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(GROUP, names.group, [AlterableConfig("consumer.session.timeout.ms", 0, "46000")])
            ],
            validate_only=True,
        ),
    ),
    "AlterPartitionReassignments": (
        45,
        lambda names, _: AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(names.missing, [ReassignablePartition(0, [1])])]
        ),
    ),
    "ListPartitionReassignments": (
        46,
        lambda _, __: ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None),
    ),
    "OffsetDelete": (
        47,
        lambda names, _: OffsetDeleteRequest(
            group_id=names.group, topics=[OffsetDeleteRequestTopic(names.topic, [OffsetDeleteRequestPartition(0)])]
        ),
    ),
    "DescribeClientQuotas": (
        48,
        lambda _, __: DescribeClientQuotasRequest(components=[ComponentData("user", 0, "nobody")]),
    ),
    "AlterClientQuotas": (
        49,
        lambda _, __: AlterClientQuotasRequest(
            entries=[EntryData([EntityData("user", "a")], [OpData("no_such_rate", 1.0)])], validate_only=True
        ),
    ),
    "DescribeUserScramCredentials": (
        50,
        lambda _, __: DescribeUserScramCredentialsRequest(users=[UserName("nobody")]),
    ),
    "AlterUserScramCredentials": (
        51,
        lambda _, __: AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("nobody", 1)]),
    ),
    "DescribeCluster": (60, lambda _, __: DescribeClusterRequest(include_cluster_authorized_operations=True)),
    "DescribeProducers": (61, lambda names, _: DescribeProducersRequest(topics=[TopicRequest(names.missing, [0])])),
    "UnregisterBroker": (64, lambda _, __: UnregisterBrokerRequest(broker_id=99)),
    "DescribeTransactions": (
        65,
        lambda names, _: DescribeTransactionsRequest(transactional_ids=[names.transactional_id]),
    ),
    "ListTransactions": (66, lambda _, __: ListTransactionsRequest()),
    "ConsumerGroupHeartbeat": (68, consumer_heartbeat),
    "ConsumerGroupDescribe": (69, lambda names, _: ConsumerGroupDescribeRequest(group_ids=[names.group])),
    "ListConfigResources": (74, lambda _, __: ListConfigResourcesRequest()),
    "DescribeTopicPartitions": (
        75,
        lambda names, _: DescribeTopicPartitionsRequest(
            topics=[DescribedTopic(names.missing), DescribedTopic(names.topic)]
        ),
    ),
}
"""By what is asked: API key, and the request in a version."""


LOGGERS = "Kafka lists the loggers of a broker, whose levels are settings there"
KNOWN_PERMISSIONS = {
    f"ListConfigResources, v1, by {user}": LOGGERS
    for user in ("allowed", "notseen", "onlydescribeconfigs", "onlyalterconfigs")
}
"""Questions to which the answers differ on purpose, with the reason."""


def versions_of(key: int) -> range:
    versions = API_KEYS[key].versions
    return range(versions.first, versions.last + 1)
