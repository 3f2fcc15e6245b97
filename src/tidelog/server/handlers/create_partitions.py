"""CreatePartitions: give a topic more partitions."""

from tidelog.controller.topic_rules import MorePartitions
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from tidelog.server.answers import error_fields
from tidelog.server.dispatch import Call


async def handle_create_partitions(request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    wanted = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [tuple(given.broker_ids) for given in topic.assignments],
        )
        for topic in request.topics
    ]
    outcomes = await call.services.create_partitions(wanted, validate_only=request.validate_only)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=outcome.name, **error_fields(outcome.error)) for outcome in outcomes]
    )
