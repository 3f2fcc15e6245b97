"""Forwarding of requests that only the controller can process, and waiting for their effect (ForwardingManager)."""

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
"""Extra time for the controller's response beyond its own timeout, and for UpdateMetadata to arrive here."""


def is_from_broker(client_id: str | None) -> bool:
    """Whether another broker forwards this request."""
    return client_id is not None and client_id.startswith(CLIENT_ID_PREFIX)


def add_broker_identity(request: CreateTopicsRequest, services: Services) -> None:
    """Prove to the controller that a broker sends this: only brokers create internal topics."""
    request.broker_id, request.broker_epoch = services.membership.broker.id, services.membership.broker_epoch


async def forward_unless_controller(
    services: Services, client_id: str | None, request: Request, response_type: type[ResponseT], timeout_ms: int
) -> ResponseT | None:
    """The controller's response; None if this broker is the controller. Raises NotController, RequestTimedOut."""
    if services.is_controller:
        return None
    if is_from_broker(client_id):
        raise NotController("this broker is no longer the controller")
    return await services.controller_link.ask(request, response_type, max(timeout_ms, 0) / 1000 + GRACE_S)


async def wait_until_applied(services: Services, is_applied: Callable[[ClusterImage], bool], timeout_ms: int) -> bool:
    """Wait until a stored change is in this broker's image. Like Kafka, no wait at all if timeout_ms is 0."""
    if timeout_ms <= 0:
        return False
    return await services.cluster.wait_until(is_applied, timeout_ms / 1000)


async def wait_briefly_until_applied(services: Services, is_applied: Callable[[ClusterImage], bool]) -> None:
    """Wait up to GRACE_S: a client that gets a success should see the change at this broker."""
    await services.cluster.wait_until(is_applied, GRACE_S)


def has_leaders(image: ClusterImage, topic: Topic) -> bool:
    """Whether the image has this topic (same id), with a leader for each partition."""
    known = image.topics.get(topic.name)
    return (
        known is not None
        and known.topic_id == topic.topic_id
        and len(known.partitions) >= len(topic.partitions)
        and all(partition.leader > NO_BROKER for partition in known.partitions)
    )
