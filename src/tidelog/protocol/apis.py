"""Table of the APIs that the broker serves: versions and messages, imported on first use."""

import re
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import cast

from tidelog.protocol.fields import LAST_VERSION, Versions
from tidelog.protocol.structs import Request, Response

NEVER = LAST_VERSION + 1


class Api:
    def __init__(self, key: int, name: str, versions: str, *, flexible_from: int, advertised: str = "") -> None:
        self.key = key
        self.name = name
        self.versions = Versions.parse(versions)
        self.flexible_from = flexible_from
        self.advertised = Versions.parse(advertised or versions)

    @cached_property
    def request(self) -> type[Request]:
        return cast("type[Request]", self._message("Request"))

    @cached_property
    def response(self) -> type[Response]:
        return cast("type[Response]", self._message("Response"))

    def _message(self, kind: str) -> object:
        module_name = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()
        return getattr(import_module(f"tidelog.protocol.messages.{module_name}"), self.name + kind)

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name!r}, versions {self.versions})"


APIS = (
    # Older librdkafka compresses only where Produce is said to begin at 0 (KAFKA-18659); 0 to 2 are refused.
    Api(0, "Produce", "3-13", flexible_from=9, advertised="0-13"),
    Api(1, "Fetch", "4-18", flexible_from=12),
    Api(2, "ListOffsets", "1-11", flexible_from=6),
    Api(3, "Metadata", "0-13", flexible_from=9),
    Api(4, "LeaderAndIsr", "5-7", flexible_from=4),
    Api(5, "StopReplica", "3-4", flexible_from=2),
    Api(6, "UpdateMetadata", "7-8", flexible_from=6),
    Api(7, "ControlledShutdown", "3", flexible_from=3),
    Api(8, "OffsetCommit", "2-10", flexible_from=8),
    Api(9, "OffsetFetch", "1-10", flexible_from=6),
    Api(10, "FindCoordinator", "0-6", flexible_from=3),
    Api(11, "JoinGroup", "0-9", flexible_from=6),
    Api(12, "Heartbeat", "0-4", flexible_from=4),
    Api(13, "LeaveGroup", "0-5", flexible_from=4),
    Api(14, "SyncGroup", "0-5", flexible_from=4),
    Api(15, "DescribeGroups", "0-6", flexible_from=5),
    Api(16, "ListGroups", "0-5", flexible_from=3),
    Api(17, "SaslHandshake", "0-1", flexible_from=NEVER),
    Api(18, "ApiVersions", "0-4", flexible_from=3),
    Api(19, "CreateTopics", "2-7", flexible_from=5),
    Api(20, "DeleteTopics", "1-6", flexible_from=4),
    Api(21, "DeleteRecords", "0-2", flexible_from=2),
    Api(22, "InitProducerId", "0-5", flexible_from=2),
    Api(23, "OffsetForLeaderEpoch", "2-4", flexible_from=4),
    Api(24, "AddPartitionsToTxn", "0-5", flexible_from=3),
    Api(25, "AddOffsetsToTxn", "0-4", flexible_from=3),
    Api(26, "EndTxn", "0-5", flexible_from=3),
    Api(27, "WriteTxnMarkers", "1-2", flexible_from=1),
    Api(28, "TxnOffsetCommit", "0-5", flexible_from=3),
    Api(29, "DescribeAcls", "1-3", flexible_from=2),
    Api(30, "CreateAcls", "1-3", flexible_from=2),
    Api(31, "DeleteAcls", "1-3", flexible_from=2),
    Api(32, "DescribeConfigs", "1-4", flexible_from=4),
    Api(33, "AlterConfigs", "0-2", flexible_from=2),
    Api(34, "AlterReplicaLogDirs", "1-2", flexible_from=2),
    Api(35, "DescribeLogDirs", "1-5", flexible_from=2),
    Api(36, "SaslAuthenticate", "0-2", flexible_from=2),
    Api(37, "CreatePartitions", "0-3", flexible_from=2),
    Api(42, "DeleteGroups", "0-2", flexible_from=2),
    Api(43, "ElectLeaders", "0-2", flexible_from=2),
    Api(44, "IncrementalAlterConfigs", "0-1", flexible_from=1),
    Api(45, "AlterPartitionReassignments", "0-1", flexible_from=0),
    Api(46, "ListPartitionReassignments", "0", flexible_from=0),
    Api(47, "OffsetDelete", "0", flexible_from=NEVER),
    Api(48, "DescribeClientQuotas", "0-1", flexible_from=1),
    Api(49, "AlterClientQuotas", "0-1", flexible_from=1),
    Api(50, "DescribeUserScramCredentials", "0", flexible_from=0),
    Api(51, "AlterUserScramCredentials", "0", flexible_from=0),
    Api(56, "AlterPartition", "2-3", flexible_from=0),
    Api(60, "DescribeCluster", "0-2", flexible_from=0),
    Api(61, "DescribeProducers", "0", flexible_from=0),
    Api(64, "UnregisterBroker", "0", flexible_from=0),
    Api(65, "DescribeTransactions", "0", flexible_from=0),
    Api(66, "ListTransactions", "0-2", flexible_from=0),
    Api(67, "AllocateProducerIds", "0", flexible_from=0),
    Api(68, "ConsumerGroupHeartbeat", "0-1", flexible_from=0),
    Api(69, "ConsumerGroupDescribe", "0-1", flexible_from=0),
    Api(74, "ListConfigResources", "0-1", flexible_from=0),
    Api(75, "DescribeTopicPartitions", "0", flexible_from=0),
)

API_KEYS: Mapping[int, Api] = {api.key: api for api in APIS}
API_VERSIONS_KEY = 18
