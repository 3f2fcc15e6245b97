"""DeleteTopics: remove topics and everything in them, by name or by id."""

from tidelog.errors import NO_ERROR, InvalidRequest
from tidelog.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.server.dispatch import Call
from tidelog.types import ZERO_UUID, Uuid

TOPIC_IDS_FROM_VERSION = 6


async def handle_delete_topics(request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    wanted: list[str | Uuid] = list(request.topic_names)
    refused = []
    if call.version >= TOPIC_IDS_FROM_VERSION:
        wanted = []
        for topic in request.topics:
            if (topic.name is None) == (topic.topic_id == ZERO_UUID):
                refused.append(
                    DeletableTopicResult(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        error_code=InvalidRequest.code,
                        error_message="a topic is named by its name or by its id, not by both",
                    )
                )
            else:
                wanted.append(topic.topic_id if topic.name is None else topic.name)
    outcomes = await call.services.delete_topics(wanted)
    return DeleteTopicsResponse(
        responses=refused
        + [
            DeletableTopicResult(
                name=outcome.name or None,
                topic_id=outcome.topic_id,
                error_code=outcome.error.code if outcome.error else NO_ERROR,
                error_message=outcome.error.message if outcome.error else None,
            )
            for outcome in outcomes
        ]
    )
