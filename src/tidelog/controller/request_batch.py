"""Controller request batch (`ControllerBrokerRequestBatch`): requests of one event, sent together at its end."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tidelog.cluster.image import BrokerRegistration, PartitionRegistration
from tidelog.cluster.znodes import UNKNOWN_EPOCH
from tidelog.config.listeners import PROTOCOL_NUMBERS
from tidelog.protocol.fields import SharedList
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.protocol.structs import Request
from tidelog.types import ZERO_UUID, BrokerId, Uuid

LEADER_DURING_DELETE: BrokerId = -2
"""Leader in UpdateMetadata that makes brokers forget the partition: its topic is being deleted."""

WHOLE_CLUSTER = 2
"""Type of an UpdateMetadata that contains all topics: a topic that is missing is deleted."""


class _Topic(NamedTuple):
    name: str
    topic_id: Uuid


class _Stop(NamedTuple):
    leader_epoch: int
    delete: bool


_Metadata: TypeAlias = dict[_Topic, dict[int, PartitionRegistration]]


class RequestBatch:
    """R36. Of several states added for one partition only the last is sent."""

    def __init__(self, controller_id: BrokerId, controller_epoch: int, listener_name: str | None = None) -> None:
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._listener_name = listener_name
        self._leader_and_isr: dict[BrokerId, dict[_Topic, dict[int, LeaderAndIsrPartitionState]]] = {}
        self._stops: dict[BrokerId, dict[_Topic, dict[int, _Stop]]] = {}
        self._metadata: list[tuple[frozenset[BrokerId], _Metadata]] = []
        """In order, each with the brokers that get it: a copy per broker would cost partitions times brokers."""
        self._whole_cluster_brokers: set[BrokerId] = set()

    def add_leader_and_isr(
        self, brokers: Iterable[BrokerId], topic: str, topic_id: Uuid, partition: PartitionRegistration, *, is_new: bool
    ) -> None:
        named, index = _Topic(topic, topic_id), partition.index
        built: dict[bool, LeaderAndIsrPartitionState] = {}
        for broker_id in brokers:
            states = self._leader_and_isr.setdefault(broker_id, {}).setdefault(named, {})
            earlier = states.get(index)
            is_created = is_new or (earlier is not None and earlier.is_new)
            if is_created not in built:
                built[is_created] = _leadership(partition, is_created)
            states[index] = built[is_created]

    def add_stop_replica(
        self,
        brokers: Iterable[BrokerId],
        topic: str,
        partition: int,
        *,
        leader_epoch: int,
        delete: bool,
        topic_id: Uuid = ZERO_UUID,
    ) -> None:
        for broker_id in brokers:
            stops = self._stops.setdefault(broker_id, {}).setdefault(_Topic(topic, topic_id), {})
            stops[partition] = _Stop(leader_epoch, delete)
            if delete:  # whatever role it had been given in the same event
                self._leader_and_isr.get(broker_id, {}).get(_Topic(topic, topic_id), {}).pop(partition, None)

    def add_metadata(
        self,
        brokers: Iterable[BrokerId],
        topics: Iterable[tuple[str, Uuid, PartitionRegistration]] = (),
        *,
        is_whole_cluster: bool = False,
    ) -> None:
        """Without topics, only the live brokers are sent. `is_whole_cluster`: there are no other topics."""
        receivers = frozenset(brokers)
        if not self._metadata or self._metadata[-1][0] != receivers:
            self._metadata.append((receivers, {}))
        _receivers, metadata = self._metadata[-1]
        for name, topic_id, partition in topics:
            metadata.setdefault(_Topic(name, topic_id), {})[partition.index] = partition
        if is_whole_cluster:
            self._whole_cluster_brokers.update(receivers)

    def build(self, live_brokers: Mapping[BrokerId, BrokerRegistration]) -> list[tuple[BrokerId, Request]]:
        """Requests to live brokers. LeaderAndIsr comes first: leaders must know their role before clients do."""
        return [
            *self._build_leader_and_isr(live_brokers),
            *self._build_metadata(live_brokers),
            *self._build_stops(live_brokers),
        ]

    def _build_leader_and_isr(
        self, live_brokers: Mapping[BrokerId, BrokerRegistration]
    ) -> list[tuple[BrokerId, Request]]:
        requests: list[tuple[BrokerId, Request]] = []
        for broker_id, topics in self._leader_and_isr.items():
            if broker_id in live_brokers:
                states = [
                    LeaderAndIsrTopicState(topic.name, topic.topic_id, list(partitions.values()))
                    for topic, partitions in topics.items()
                    if partitions
                ]
                if not states:
                    continue
                request = LeaderAndIsrRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._controller_epoch,
                    broker_epoch=live_brokers[broker_id].epoch,
                    topic_states=states,
                    live_leaders=self._live_leaders(states, live_brokers),
                )
                requests.append((broker_id, request))
        return requests

    def _live_leaders(
        self, topics: Iterable[LeaderAndIsrTopicState], live_brokers: Mapping[BrokerId, BrokerRegistration]
    ) -> list[LeaderAndIsrLiveLeader]:
        found = []
        for broker_id in sorted({state.leader for topic in topics for state in topic.partition_states}):
            broker = live_brokers.get(broker_id)
            endpoint = None if broker is None else broker.inter_broker_endpoint(self._listener_name)
            if endpoint is not None:
                found.append(LeaderAndIsrLiveLeader(broker_id, endpoint.host, endpoint.port))
        return found

    def _build_metadata(self, live_brokers: Mapping[BrokerId, BrokerRegistration]) -> list[tuple[BrokerId, Request]]:
        """Brokers that get the same metadata share the states: they are built once, and encoded once."""
        brokers = SharedList(_described(broker) for broker in live_brokers.values())
        built: dict[tuple[int, ...], SharedList[UpdateMetadataTopicState]] = {}
        requests: list[tuple[BrokerId, Request]] = []
        for broker_id, broker in live_brokers.items():
            numbers = tuple(number for number, (receivers, _) in enumerate(self._metadata) if broker_id in receivers)
            if not numbers:
                continue
            if numbers not in built:
                built[numbers] = _states(_merged([self._metadata[each][1] for each in numbers]), live_brokers)
            request = UpdateMetadataRequest(
                controller_id=self._controller_id,
                type=WHOLE_CLUSTER if broker_id in self._whole_cluster_brokers else 0,
                controller_epoch=self._controller_epoch,
                broker_epoch=broker.epoch,
                topic_states=built[numbers],
                live_brokers=brokers,
            )
            requests.append((broker_id, request))
        return requests

    def _build_stops(self, live_brokers: Mapping[BrokerId, BrokerRegistration]) -> list[tuple[BrokerId, Request]]:
        requests: list[tuple[BrokerId, Request]] = []
        for broker_id, topics in self._stops.items():
            if broker_id in live_brokers:
                request = StopReplicaRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._controller_epoch,
                    broker_epoch=live_brokers[broker_id].epoch,
                    topic_states=[
                        StopReplicaTopicState(
                            topic.name,
                            [StopReplicaPartitionState(index, *stop) for index, stop in partitions.items()],
                            topic.topic_id,
                        )
                        for topic, partitions in topics.items()
                    ],
                )
                requests.append((broker_id, request))
        return requests


def _leadership(partition: PartitionRegistration, is_new: bool) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=partition.index,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.in_sync_replicas,
        partition_epoch=partition.version,
        replicas=partition.replicas,
        adding_replicas=partition.adding_replicas,
        removing_replicas=partition.removing_replicas,
        is_new=is_new,
        isr_epochs=_epochs(partition.in_sync_replicas, partition.in_sync_epochs),
        elr=partition.eligible_leader_replicas,
        elr_epochs=_epochs(partition.eligible_leader_replicas, partition.eligible_leader_epochs)
        if partition.eligible_leader_replicas
        else (),
    )


def _epochs(replicas: Iterable[BrokerId], epochs: Mapping[BrokerId, int]) -> list[int]:
    return [epochs.get(each, UNKNOWN_EPOCH) for each in replicas]


def _merged(added: Sequence[_Metadata]) -> _Metadata:
    """Of several states of one partition the last."""
    if len(added) == 1:
        return added[0]
    merged: _Metadata = {}
    for metadata in added:
        for topic, partitions in metadata.items():
            merged.setdefault(topic, {}).update(partitions)
    return merged


def _states(
    metadata: _Metadata, live_brokers: Mapping[BrokerId, BrokerRegistration]
) -> SharedList[UpdateMetadataTopicState]:
    return SharedList(
        UpdateMetadataTopicState(
            topic.name, topic.topic_id, [_metadata(partition, live_brokers) for partition in partitions.values()]
        )
        for topic, partitions in metadata.items()
    )


def _metadata(
    partition: PartitionRegistration, live_brokers: Mapping[BrokerId, BrokerRegistration]
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=partition.index,
        controller_epoch=partition.controller_epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.in_sync_replicas,
        zk_version=partition.version,
        replicas=partition.replicas,
        offline_replicas=[replica for replica in partition.replicas if replica not in live_brokers],
        elr=partition.eligible_leader_replicas,
        last_known_elr=partition.last_known_eligible,
    )


def _described(broker: BrokerRegistration) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker.id,
        endpoints=[
            UpdateMetadataEndpoint(
                endpoint.port, endpoint.host, endpoint.listener_name, PROTOCOL_NUMBERS[endpoint.security_protocol]
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
        epoch=broker.epoch,
    )
