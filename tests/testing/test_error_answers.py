"""Error responses for every API and version: valid on the wire, with the error where clients look for it."""

from typing import Any

import pytest

from tidelog.errors import NotController, NotCoordinator, NotLeaderOrFollower, UnstableOffsetCommit
from tidelog.protocol.apis import APIS, Api
from tidelog.protocol.codec import decoder, encoder
from tidelog.protocol.fields import Array, Fixed, Nested, Text
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.testing.error_answers import error_codes, error_named, error_response, kafka_name
from tidelog.testing.request_parts import api_named, as_plain, parts_of


def _sample(struct: type[Struct], version: int) -> Any:
    """With one element in every array."""
    sample = struct()
    for field in struct.__fields__:
        if version in field.versions:
            setattr(sample, field.name, _value(field.type, version, getattr(sample, field.name)))
    return sample


def _value(type_: Any, version: int, default: Any) -> Any:
    match type_:
        case Array(element):
            return [_value(element, version, None)]
        case Nested(struct):
            return _sample(struct, version)
        case Text():
            return "tides"
        case Fixed("i", _):
            return 3
        case Fixed("16s", _):
            return b"i" * 16
        case Fixed(code, _):
            return False if code == "?" else 0
        case _:
            return default if default is not None else b""


def _sent(api: Api, version: int, response: Response) -> Response:
    """As a client reads it."""
    parts: list[Any] = []
    encoder(api.response, version)(response, parts.append)
    frame = b"".join(bytes(part) for part in parts)
    decoded, end = decoder(api.response, version)(memoryview(frame), 0)
    assert end == len(frame)
    return decoded


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_version_of_every_api_can_answer_with_an_error(api: Api) -> None:
    for version in range(api.versions.first, api.versions.last + 1):
        request = _sample(api.request, version)
        for error in (NotLeaderOrFollower, NotCoordinator):
            answer = _sent(api, version, error_response(api.name, request, api.response, version, error))
            assert set(error_codes(answer)) == {error.code}, (version, answer)


def _answer(name: str, version: int, error: Any, request: Request | None = None) -> dict[str, Any]:
    api = api_named(name)
    request = request or _sample(api.request, version)
    return as_plain(_sent(api, version, error_response(name, request, api.response, version, error)), version)


def test_produce_names_topic_and_partition() -> None:
    (topic,) = _answer("Produce", 9, NotLeaderOrFollower)["responses"]
    (partition,) = topic["partition_responses"]
    assert (topic["name"], partition["index"], partition["error_code"]) == ("tides", 3, 6)


def test_produce_with_topic_ids() -> None:
    (topic,) = _answer("Produce", 13, NotLeaderOrFollower)["responses"]
    assert topic["topic_id"] == (b"i" * 16).hex()


def test_fetch_has_partition_errors_and_session_errors() -> None:
    answer = _answer("Fetch", 12, NotLeaderOrFollower)
    (partition,) = answer["responses"][0]["partitions"]
    assert (answer["error_code"], partition["partition_index"], partition["error_code"]) == (0, 3, 6)
    assert _answer("Fetch", 12, error_named("FETCH_SESSION_ID_NOT_FOUND"))["error_code"] == 70


def test_offset_fetch_tells_errors_of_the_group_and_of_partitions_apart() -> None:
    (group,) = _answer("OffsetFetch", 8, NotCoordinator)["groups"]
    assert (group["group_id"], group["error_code"], group["topics"]) == ("tides", 16, [])
    (group,) = _answer("OffsetFetch", 8, UnstableOffsetCommit)["groups"]
    assert group["topics"][0]["partitions"][0]["error_code"] == 88
    assert _answer("OffsetFetch", 5, NotCoordinator)["error_code"] == 16


def test_find_coordinator_before_and_after_batches() -> None:
    assert _answer("FindCoordinator", 3, NotCoordinator)["error_code"] == 16
    (coordinator,) = _answer("FindCoordinator", 4, NotCoordinator)["coordinators"]
    assert (coordinator["key"], coordinator["error_code"]) == ("tides", 16)


def test_create_topics_names_topics_and_says_why() -> None:
    (topic,) = _answer("CreateTopics", 5, NotController)["topics"]
    assert (topic["name"], topic["error_code"]) == ("tides", 41)
    assert topic["error_message"]


def test_flat_answers() -> None:
    (partition,) = _answer("StopReplica", 4, NotLeaderOrFollower)["partition_errors"]
    assert (partition["topic_name"], partition["partition_index"]) == ("tides", 3)


def test_errors_have_the_names_of_kafka() -> None:
    assert error_named("NOT_LEADER_OR_FOLLOWER") is error_named("NotLeaderOrFollower") is NotLeaderOrFollower
    assert kafka_name(NotLeaderOrFollower) == "NOT_LEADER_OR_FOLLOWER"
    assert kafka_name(error_named("INVALID_TOPIC_EXCEPTION")) == "INVALID_TOPIC_EXCEPTION"
    assert error_named(9999).code == 9999
    with pytest.raises(ValueError, match="there is no Kafka error 'NOT_ENOUGH'"):
        error_named("NOT_ENOUGH")


def test_parts_of_requests() -> None:
    for name, version in (("Produce", 9), ("Fetch", 11), ("ListOffsets", 5), ("OffsetCommit", 8), ("OffsetFetch", 8)):
        parts = parts_of(_sample(api_named(name).request, version), version, lambda _: None)
        assert parts.partitions == {"tides": [3]}, name
    by_id = parts_of(_sample(api_named("Fetch").request, 13), 13, {b"i" * 16: "found"}.get)
    assert by_id.partitions == {"found": [3]}
    assert parts_of(_sample(api_named("Heartbeat").request, 4), 4, lambda _: None).groups == ["tides"]
    assert parts_of(_sample(api_named("EndTxn").request, 3), 3, lambda _: None).transactional_ids == ["tides"]
    assert list(parts_of(_sample(api_named("DeleteTopics").request, 5), 5, lambda _: None).partitions) == ["tides"]
    assert parts_of(_sample(api_named("FindCoordinator").request, 4), 4, lambda _: None).groups == ["tides"]


def test_an_unknown_api_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="there is no request 'Push'"):
        api_named("Push")
