"""FindCoordinator (API key 10): returns the coordinator of a group or transactional id.

The coordinator is the leader of the partition of the internal topic that stores it. The first request creates the
topic and waits briefly for it. Until a leader exists clients get COORDINATOR_NOT_AVAILABLE and retry.
"""

from collections.abc import Iterable

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.image import BrokerRegistration
from tidelog.cluster.topic_names import GROUP_TOPIC, TRANSACTION_TOPIC
from tidelog.config.listeners import Endpoint
from tidelog.errors import (
    CoordinatorNotAvailable,
    GroupAuthorizationFailed,
    InvalidRequest,
    KafkaError,
    TransactionalIdAuthorizationFailed,
)
from tidelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields
from tidelog.types import NO_BROKER

BATCHES_FROM_VERSION = 4
TOPICS_BY_KEY_TYPE = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
RESOURCES_BY_TOPIC = {GROUP_TOPIC: ResourceType.GROUP, TRANSACTION_TOPIC: ResourceType.TRANSACTIONAL_ID}
CREATION_WAIT_S = 1.0
NO_PORT = -1


async def handle_find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    keys = [request.key] if context.version < BATCHES_FROM_VERSION else request.coordinator_keys
    topic = TOPICS_BY_KEY_TYPE.get(request.key_type)
    if topic is not None and await _permits_any(keys, topic, context):
        await context.services.internal_topics.ensure(topic, CREATION_WAIT_S)
    found = await context.services.turns.each(keys, lambda key: _coordinator(key, topic, request.key_type, context))
    if context.version >= BATCHES_FROM_VERSION:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(key: str, topic: str | None, key_type: int, context: RequestContext) -> Coordinator:
    try:
        if topic is None:
            raise InvalidRequest(f"key type {key_type} is neither a group (0) nor a transactional id (1)")
        _require_permission(key, topic, context)
        broker, endpoint = _find(key, topic, context)
    except KafkaError as error:
        return Coordinator(key=key, node_id=NO_BROKER, host="", port=NO_PORT, **error_fields(error))
    return Coordinator(key=key, node_id=broker.id, host=endpoint.host, port=endpoint.port, **error_fields(None))


async def _permits_any(keys: Iterable[str], topic: str, context: RequestContext) -> bool:
    for key in keys:
        if not context.is_denied(Operation.DESCRIBE, RESOURCES_BY_TOPIC[topic], key, is_logged=False):
            return True
        await context.services.turns.yield_turn()
    return False


def _require_permission(key: str, topic: str, context: RequestContext) -> None:
    if context.is_denied(Operation.DESCRIBE, RESOURCES_BY_TOPIC[topic], key):
        raise GroupAuthorizationFailed if topic == GROUP_TOPIC else TransactionalIdAuthorizationFailed


def _find(key: str, topic: str, context: RequestContext) -> tuple[BrokerRegistration, Endpoint]:
    services = context.services
    image = services.cluster.image
    coordinated = (services.groups if topic == GROUP_TOPIC else services.transactions).partition_of(key)
    partition = image.partition(coordinated)
    if partition is None:
        raise CoordinatorNotAvailable(f"{topic} does not exist yet")
    broker = image.brokers.get(partition.leader)
    endpoint = None if broker is None else broker.endpoint(context.session.listener)
    if broker is None or endpoint is None or broker.id in services.replicas.suspected_leaders():
        raise CoordinatorNotAvailable(f"{coordinated} has no leader now")
    return broker, endpoint
