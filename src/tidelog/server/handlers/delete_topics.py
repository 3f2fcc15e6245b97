"""DeleteTopics: remove topics and everything in them, by name or by id."""

from tidelog.controller.topics import TopicOutcome
from tidelog.errors import InvalidRequest
from tidelog.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.server.answers import error_fields
from tidelog.server.dispatch import Call
from tidelog.types import ZERO_UUID, Uuid

TOPIC_IDS_FROM_VERSION = 6


async def handle_delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    wanted: list[str | Uuid] = list(request.topic_names)
    refused = []
    if call.version >= TOPIC_IDS_FROM_VERSION:
        refused = [topic for topic in request.topics if not _is_well_named(topic)]
        wanted = [
            topic.topic_id if topic.name is None else topic.name for topic in request.topics if _is_well_named(topic)
        ]
    outcomes = await call.services.delete_topics(wanted)
    return DeleteTopicsResponse(responses=[*map(_refusal, refused), *map(_result, outcomes)])


def _is_well_named(topic: DeleteTopicState) -> bool:
    return (topic.name is None) != (topic.topic_id == ZERO_UUID)


def _refusal(topic: DeleteTopicState) -> DeletableTopicResult:
    message = (
        "Neither topic name nor id were specified."
        if topic.name is None
        else "You may not specify both topic name and topic id."
    )
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, **error_fields(InvalidRequest(message)))


def _result(outcome: TopicOutcome) -> DeletableTopicResult:
    is_unknown_id = not outcome.name and outcome.topic_id != ZERO_UUID
    return DeletableTopicResult(
        name=None if is_unknown_id else outcome.name, topic_id=outcome.topic_id, **error_fields(outcome.error)
    )
