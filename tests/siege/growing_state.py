"""Attacks by names and metadata that a broker has to remember, and by lists that few clients ever send."""

from tests.siege.attacks import MAX_ELEMENTS, Attacker, attack, names
from tests.siege.costly_arguments import TRANSACTION, at_coordinator
from tests.siege.floods import flood
from tests.siege.wire import frame
from tidelog.protocol.messages import alter_client_quotas, describe_client_quotas
from tidelog.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest
from tidelog.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
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
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

LONG = 30_000
CONFIG_OF_TOPIC = 2


def _long_name(number: int) -> str:
    return f"{number:0{LONG}d}"


@attack("long-transactional-ids", "InitProducerId of new transactional ids of 30 KB each, as many as fit")
def _long_transactional_ids(attacker: Attacker) -> None:
    def init(number: int) -> bytes:
        request = InitProducerIdRequest(transactional_id=_long_name(number), transaction_timeout_ms=60_000)
        return frame(request, 4)

    flood(at_coordinator(attacker, "long", TRANSACTION), 10, init)


@attack("long-group-ids", "OffsetCommit of new groups with names of 30 KB each, as many as fit")
def _long_group_ids(attacker: Attacker) -> None:
    partitions = [OffsetCommitRequestPartition(0, 1, -1, "")]

    def commit(number: int) -> bytes:
        topics = [OffsetCommitRequestTopic(name=attacker.target.topic, partitions=partitions)]
        return frame(OffsetCommitRequest(group_id=_long_name(number), topics=topics), 8)

    flood(at_coordinator(attacker, "long"), 10, commit)


@attack("large-groups", "JoinGroup of new groups, each with one member and 500 KB of metadata, as many as fit")
def _large_groups(attacker: Attacker) -> None:
    metadata = bytes(500_000)

    def join(number: int) -> bytes:
        return frame(
            JoinGroupRequest(
                group_id=f"large-{number}", session_timeout_ms=10_000, rebalance_timeout_ms=60_000, member_id="",
                protocol_type="consumer", protocols=[JoinGroupRequestProtocol("range", metadata)],
            ),
            3,
        )  # fmt: skip

    flood(attacker, 10, join, per_round=20)


@attack("large-subscriptions", "ConsumerGroupHeartbeat of new members that subscribe to 5,000 topics, as many as fit")
def _large_subscriptions(attacker: Attacker) -> None:
    wanted = names(attacker.scaled(5_000), 100)

    def join(number: int) -> bytes:
        return frame(
            ConsumerGroupHeartbeatRequest(
                group_id="subscribers", member_id=f"member-{number}", member_epoch=0,
                rebalance_timeout_ms=60_000, topic_partitions=[], subscribed_topic_names=wanted,
            ),
            1,
        )  # fmt: skip

    flood(at_coordinator(attacker, "subscribers"), 5, join, per_round=5)


@attack("software-names", "ApiVersions with names of client software of 30 KB, always others")
def _software_names(attacker: Attacker) -> None:
    def ask(number: int) -> bytes:
        name = f"{number:0{LONG}d}"
        return frame(ApiVersionsRequest(client_software_name=name, client_software_version=name), 3)

    flood(attacker, 10, ask)


@attack("quota-entities", "AlterClientQuotas that only checks 5,000 client ids, and DescribeClientQuotas of as many")
def _quota_entities(attacker: Attacker) -> None:
    ops = [OpData("consumer_byte_rate", 1e9, remove=False)]
    entries = [
        alter_client_quotas.EntryData([alter_client_quotas.EntityData("client-id", name)], ops)
        for name in names(attacker.scaled(5_000))
    ]
    components = [
        describe_client_quotas.ComponentData("client-id", 0, name) for name in names(attacker.scaled(MAX_ELEMENTS))
    ]
    data = frame(AlterClientQuotasRequest(entries=entries, validate_only=True), 1)
    data += frame(describe_client_quotas.DescribeClientQuotasRequest(components=components), 1)
    attacker.push(attacker.connections(3), data, repeat=True, reads=True)


@attack("scram-users", "passwords of 16,000 users who do not exist, described and deleted")
def _scram_users(attacker: Attacker) -> None:
    users = names(attacker.scaled(MAX_ELEMENTS))
    data = frame(DescribeUserScramCredentialsRequest(users=[UserName(name) for name in users]), 0)
    data += frame(
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name, 1) for name in users], upsertions=[]),
        0,
    )
    attacker.push(attacker.connections(3), data, repeat=True, reads=True)


@attack("false-assignments", "SyncGroup with 16,000 assignments in a group that does not exist")
def _false_assignments(attacker: Attacker) -> None:
    assignments = [SyncGroupRequestAssignment(name, b"a" * 20) for name in names(attacker.scaled(MAX_ELEMENTS))]
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range",
        assignments=assignments,
    )  # fmt: skip
    at_coordinator(attacker, "g").ask_repeatedly(request, 5)


@attack("offsets-in-transactions", "TxnOffsetCommit of 16,000 partitions by a producer that does not exist")
def _offsets_in_transactions(attacker: Attacker) -> None:
    wanted = [TxnOffsetCommitRequestPartition(index, 1, -1, "x") for index in range(attacker.scaled(MAX_ELEMENTS))]
    request = TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=1, producer_epoch=1, member_id="",
        topics=[TxnOffsetCommitRequestTopic(name=attacker.target.topic, partitions=wanted)],
    )  # fmt: skip
    at_coordinator(attacker, "g").ask_repeatedly(request, 3)


@attack("false-markers", "WriteTxnMarkers that abort a transaction of one partition, of 5,000 producers")
def _false_markers(attacker: Attacker) -> None:
    topics = [WritableTxnMarkerTopic(attacker.target.topic, [attacker.target.partition])]
    markers = [
        WritableTxnMarker(number, 0, transaction_result=False, topics=topics, coordinator_epoch=0)
        for number in range(attacker.scaled(5_000))
    ]
    attacker.ask_repeatedly(WriteTxnMarkersRequest(markers=markers), 1)


@attack("deleted-topics", "DeleteTopics of 16,000 topics that do not exist")
def _deleted_topics(attacker: Attacker) -> None:
    request = DeleteTopicsRequest(topic_names=names(attacker.scaled(MAX_ELEMENTS)), timeout_ms=1000)
    attacker.ask_repeatedly(request, 5)


@attack("listed-reassignments", "ListPartitionReassignments of 16,000 partitions, most of which do not exist")
def _listed_reassignments(attacker: Attacker) -> None:
    topics = [ListPartitionReassignmentsTopic(attacker.target.topic, range(attacker.scaled(MAX_ELEMENTS)))]
    attacker.ask_repeatedly(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=topics), 0)


@attack("described-consumer-groups", "ConsumerGroupDescribe of 16,000 groups that do not exist")
def _described_consumer_groups(attacker: Attacker) -> None:
    attacker.ask_repeatedly(ConsumerGroupDescribeRequest(group_ids=names(attacker.scaled(MAX_ELEMENTS))), 1)


@attack("nested-offsets", "OffsetFetch of 120 groups with 120 partitions each")
def _nested_offsets(attacker: Attacker) -> None:
    topics = [OffsetFetchRequestTopics(name=attacker.target.topic, partition_indexes=range(120))]
    groups = [OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names(attacker.scaled(120))]
    attacker.ask_repeatedly(OffsetFetchRequest(groups=groups), 8)


@attack("long-settings", "IncrementalAlterConfigs that only checks a setting of 32 KB, 100 times")
def _long_settings(attacker: Attacker) -> None:
    values = [",".join(f"{index}:{index}" for index in range(2_500)), "a" * LONG]
    keys = ["leader.replication.throttled.replicas", "compression.type", "cleanup.policy"]
    configs = [AlterableConfig(key, 0, value) for key in keys for value in values]
    resources = [
        AlterConfigsResource(CONFIG_OF_TOPIC, attacker.target.topic, [config])
        for config in configs
        for _ in range(attacker.scaled(16))
    ]
    attacker.ask_repeatedly(IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 1)
