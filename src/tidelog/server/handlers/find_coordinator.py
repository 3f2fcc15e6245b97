"""FindCoordinator: which broker looks after a consumer group or a transaction. Today, none does.

The API is served all the same: librdkafka takes it as the sign of a broker that knows lz4, and would silently send
uncompressed without it. The answer is the retriable one that Kafka gives while no coordinator is there: a harder one
would reach consumers of librdkafka that assign their partitions themselves, who ask too but need no coordinator.
"""

import logging

from tidelog.errors import CoordinatorNotAvailable
from tidelog.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.server.dispatch import Call
from tidelog.types import NO_BROKER

logger = logging.getLogger(__name__)

BATCHES_FROM_VERSION = 4
NO_COORDINATOR = CoordinatorNotAvailable(
    "this broker does not coordinate groups or transactions yet; let consumers assign their partitions themselves"
)


def handle_find_coordinator(request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    keys = [request.key] if call.version < BATCHES_FROM_VERSION else request.coordinator_keys
    logger.debug("no coordinator for %s client=%s", ",".join(keys), call.client_id)
    code, message = NO_COORDINATOR.code, NO_COORDINATOR.message
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=NO_BROKER,
        port=-1,
        coordinators=[
            Coordinator(key=key, node_id=NO_BROKER, port=-1, error_code=code, error_message=message) for key in keys
        ],
    )
