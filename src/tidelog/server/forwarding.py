"""Requests that only the controller can carry out: any other broker passes them on and relays the answer."""

from collections.abc import Callable
from typing import TypeVar

from tidelog.cluster.image import ClusterImage, Topic
from tidelog.errors import NotController
from tidelog.protocol.messages.create_topics import CreateTopicsRequest
from tidelog.protocol.structs import Request, Response
from tidelog.server.controller_link import CLIENT_ID_PREFIX
from tidelog.server.services import Services
from tidelog.types import NO_BROKER

ResponseT = TypeVar("ResponseT", bound=Response)

GRACE_S = 1.0
"""How much longer than the controller itself to wait for its answer, and then for this broker to hear of the result."""


def is_from_broker(client_id: str | None) -> bool:
    """Whether another broker passes a request on."""
    return client_id is not None and client_id.startswith(CLIENT_ID_PREFIX)


def vouch_for(request: CreateTopicsRequest, services: Services) -> None:
    """Show the controller that a broker asks, who may have topics of coordinators made."""
    request.broker_id, request.broker_epoch = services.membership.broker.id, services.membership.broker_epoch


def is_vouched_for(request: CreateTopicsRequest, services: Services) -> bool:
    """Whether it names a live broker and its epoch, which no client is told. Names prove nothing."""
    broker = services.cluster.image.brokers.get(request.broker_id)
    return broker is not None and broker.epoch == request.broker_epoch >= 0


async def forward_unless_controller(
    services: Services, client_id: str | None, request: Request, answer_type: type[ResponseT], timeout_ms: int
) -> ResponseT | None:
    """The controller's answer; None if this broker is the controller. Raises NotController, RequestTimedOut."""
    if services.is_controller:
        return None
    if is_from_broker(client_id):
        raise NotController("this broker is no longer the controller")
    return await services.controller_link.ask(request, answer_type, max(timeout_ms, 0) / 1000 + GRACE_S)


async def wait_until_seen(services: Services, is_seen: Callable[[ClusterImage], bool], timeout_ms: int) -> bool:
    """Whether a change that was written shows in this broker's image in time; Kafka does not wait without a time."""
    if timeout_ms <= 0:
        return False
    return await services.cluster.wait_until(is_seen, timeout_ms / 1000)


async def let_it_be_seen(services: Services, is_seen: Callable[[ClusterImage], bool]) -> None:
    """Whoever is told of a success shall find it at this broker too, unless that takes long."""
    await services.cluster.wait_until(is_seen, GRACE_S)


def has_leaders(image: ClusterImage, topic: Topic) -> bool:
    """Whether this very topic is known, and each of its partitions led by somebody."""
    known = image.topics.get(topic.name)
    return (
        known is not None
        and known.topic_id == topic.topic_id
        and len(known.partitions) >= len(topic.partitions)
        and all(partition.leader > NO_BROKER for partition in known.partitions)
    )
