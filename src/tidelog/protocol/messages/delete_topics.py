"""DeleteTopics: remove topics, by name or by id."""

from collections.abc import Sequence

from tidelog.protocol.fields import array, int16, int32, string, uuid
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.types import Uuid


class DeleteTopicState(Struct):
    name: str | None = string(nullable="0+")  # null where `topic_id` is given
    topic_id: Uuid = uuid()


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, versions="6+")
    topic_names: Sequence[str] = array(string, versions="0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: Uuid = uuid(versions="6+")
    error_code: int = int16()
    error_message: str | None = string(versions="5+", nullable="5+")


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
