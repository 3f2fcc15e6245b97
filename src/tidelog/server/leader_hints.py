"""Leader hints in NOT_LEADER_OR_FOLLOWER responses of Produce and Fetch (KIP-951)."""

from collections.abc import Iterable

from tidelog.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower
from tidelog.protocol.messages import fetch as fetch_messages
from tidelog.protocol.messages import produce as produce_messages
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import reachable_brokers
from tidelog.server.services import Services
from tidelog.types import NO_BROKER, NO_LEADER_EPOCH, BrokerId, TopicPartition, Uuid

IN_FETCH_FROM_VERSION = 16
IN_PRODUCE_FROM_VERSION = 10
FETCH_ERRORS = (NotLeaderOrFollower.code, FencedLeaderEpoch.code)


def add_leaders_to_fetch(response: FetchResponse, context: RequestContext) -> None:
    if context.version < IN_FETCH_FROM_VERSION:
        return
    leaders: set[BrokerId] = set()
    for topic in response.responses:
        name = _topic_name(topic.topic, topic.topic_id, context.services)
        for data in topic.partitions:
            if data.error_code in FETCH_ERRORS:
                leader, epoch = _leader_of(name, data.partition_index, context.services)
                data.current_leader = fetch_messages.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    response.node_endpoints = [
        fetch_messages.NodeEndpoint(*node) for node in _nodes(leaders, context.services, context.session.listener)
    ]


def add_leaders_to_produce(response: ProduceResponse, context: RequestContext) -> None:
    if context.version < IN_PRODUCE_FROM_VERSION or not _has_lost_leaders(response):
        return
    leaders: set[BrokerId] = set()
    for topic in response.responses:
        name = _topic_name(topic.name, topic.topic_id, context.services)
        for answer in topic.partition_responses:
            if answer.error_code == NotLeaderOrFollower.code:
                leader, epoch = _leader_of(name, answer.index, context.services)
                answer.current_leader = produce_messages.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
                leaders.add(leader)
    response.node_endpoints = [
        produce_messages.NodeEndpoint(*node) for node in _nodes(leaders, context.services, context.session.listener)
    ]


def _has_lost_leaders(response: ProduceResponse) -> bool:
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == NotLeaderOrFollower.code:
                return True
    return False


def _topic_name(name: str, topic_id: Uuid, services: Services) -> str:
    return name or services.cluster.image.topic_names.get(topic_id, "")


def _leader_of(topic: str, index: int, services: Services) -> tuple[BrokerId, int]:
    """The newer of two views: LeaderAndIsr of the hosted replica, and the image of UpdateMetadata."""
    known = services.cluster.image.partition(TopicPartition(topic, index))
    leader, epoch = (NO_BROKER, NO_LEADER_EPOCH) if known is None else (known.leader, known.leader_epoch)
    try:
        hosted = services.replicas.get(topic, index)
    except KafkaError:
        return leader, epoch
    return (hosted.leader_id, hosted.leader_epoch) if hosted.leader_epoch > epoch else (leader, epoch)


def _nodes(
    leaders: set[BrokerId], services: Services, listener: str
) -> Iterable[tuple[BrokerId, str, int, str | None]]:
    return [
        (broker.id, endpoint.host, endpoint.port, broker.rack)
        for broker, endpoint in reachable_brokers(services.cluster.image.brokers.values(), listener)
        if broker.id in leaders
    ]
