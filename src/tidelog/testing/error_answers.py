"""Responses that carry a given error: for any API and version, with the error where clients of that API look for it.

# Core: no clock, no I/O, no await.
"""

from collections.abc import Iterator
from typing import Any

from tidelog.errors import ERRORS_BY_CODE, KafkaError
from tidelog.protocol.fields import Array, Field, Fixed, Nested, Text
from tidelog.protocol.structs import Request, Response, Struct

ERROR_FIELDS = ("error_code", "partition_error_code")
MESSAGE_FIELD = "error_message"
INVALID_TOPIC_EXCEPTION = 17

WHOLE_REQUEST = {
    11,  # STALE_CONTROLLER_EPOCH
    14,  # COORDINATOR_LOAD_IN_PROGRESS
    15,  # COORDINATOR_NOT_AVAILABLE
    16,  # NOT_COORDINATOR
    24,  # INVALID_GROUP_ID
    25,  # UNKNOWN_MEMBER_ID
    30,  # GROUP_AUTHORIZATION_FAILED
    31,  # CLUSTER_AUTHORIZATION_FAILED
    41,  # NOT_CONTROLLER
    68,  # NON_EMPTY_GROUP
    69,  # GROUP_ID_NOT_FOUND
    70,  # FETCH_SESSION_ID_NOT_FOUND
    71,  # INVALID_FETCH_SESSION_EPOCH
    77,  # STALE_BROKER_EPOCH
    106,  # FETCH_SESSION_TOPIC_ID_ERROR
    110,  # FENCED_MEMBER_EPOCH
    113,  # STALE_MEMBER_EPOCH
}
"""Errors of a request or group as a whole. They stand at the outermost level that has a field for errors."""

SAME_THING = (
    ("name", "topic", "topic_name"),
    ("partition_index", "partition", "index", "partition_id"),
)
"""Fields with different names in request and response."""

NOT_ANSWERED = {"forgotten_topics_data", "live_leaders", "live_brokers", "protocols", "assignments"}
"""Arrays of requests whose elements have no counterpart in the response."""

FLAT = {"StopReplica": "topic_states", "AlterReplicaLogDirs": "dirs"}
"""The response lists what the request has one level deeper."""


def error_named(name: str | int) -> type[KafkaError]:
    """By Kafka's name (NOT_ENOUGH_REPLICAS), by the name of its class (NotEnoughReplicas) or by its code.

    Raises ValueError. A code may be one that this version does not know.
    """
    if isinstance(name, int):
        return ERRORS_BY_CODE.get(name) or type(f"Error{name}", (KafkaError,), {"code": name})
    wanted = _squeezed(name)
    for error in ERRORS_BY_CODE.values():
        if _squeezed(error.__name__) == wanted:
            return error
    raise ValueError(f"there is no Kafka error {name!r}; names are those of Kafka's protocol, such as NOT_COORDINATOR")


def kafka_name(error: type[KafkaError]) -> str:
    """NOT_ENOUGH_REPLICAS"""
    if error.code == INVALID_TOPIC_EXCEPTION:
        return "INVALID_TOPIC_EXCEPTION"
    text = "".join(f"_{letter}" if letter.isupper() else letter for letter in error.__name__)
    return text.lstrip("_").upper()


def _squeezed(name: str) -> str:
    return name.replace("_", "").lower().removesuffix("error").removesuffix("exception")


def error_response(
    api_name: str, request: Request, response_type: type[Response], version: int, error: type[KafkaError]
) -> Response:
    """The response to `request` in which everything that it asks for has failed with `error`."""
    response = response_type()
    if api_name in FLAT:
        _fill_flat(response, request, FLAT[api_name], version, error)
    elif not _fill(response, request, version, error):
        _fill_without_counterpart(response, version, error)
    return response


def _fill(target: Struct, source: Struct | None, version: int, error: type[KafkaError]) -> bool:
    """Put the error into `target`, which answers `source`: into its elements if it has some. False if nowhere."""
    own = next((field for field in target.__fields__ if field.name in ERROR_FIELDS and version in field.versions), None)
    arrays = _arrays_with_errors(target, version)
    for field in arrays if own is None or error.code not in WHOLE_REQUEST else ():
        elements = [] if source is None else _elements_to_answer(source, version)
        if elements:
            setattr(target, field.name, [_answer(field, element, version, error) for element in elements])
            return True
    if own is None:
        return False
    setattr(target, own.name, error.code)
    if any(field.name == MESSAGE_FIELD and version in field.versions for field in target.__fields__):
        setattr(target, MESSAGE_FIELD, error.__doc__)
    return True


def _answer(field: Field, element: object, version: int, error: type[KafkaError]) -> Struct:
    answer: Struct = _element_struct(field)()
    if isinstance(element, Struct):
        _copy_identity(answer, element, version)
        _fill(answer, element, version, error)
    else:
        _set_first(answer, element, version)
        _fill(answer, None, version, error)
    return answer


def _fill_flat(response: Struct, request: Struct, outer: str, version: int, error: type[KafkaError]) -> None:
    (field,) = _arrays_with_errors(response, version)
    answers = []
    for outer_element in getattr(request, outer):
        for inner in _elements_to_answer(outer_element, version):
            answer = _answer(field, inner, version, error)
            topic = _value_of(outer_element, SAME_THING[0])
            if topic is not None:
                _set_of(answer, SAME_THING[0], topic)
            answers.append(answer)
    setattr(response, field.name, answers)


def _fill_without_counterpart(response: Struct, version: int, error: type[KafkaError]) -> None:
    """The request names nothing, and only elements have a field for errors: one element with the error."""
    for field in _arrays_with_errors(response, version):
        setattr(response, field.name, [_answer(field, None, version, error)])
        return


# ---- fields


def _arrays_with_errors(struct: Struct | type[Struct], version: int) -> list[Field]:
    return [
        field
        for field in struct.__fields__
        if version in field.versions
        and field.tag is None
        and isinstance(field.type, Array)
        and isinstance(field.type.element, Nested)
        and _has_errors(field.type.element.struct, version)
    ]


def _has_errors(struct: type[Struct], version: int) -> bool:
    return any(field.name in ERROR_FIELDS for field in struct.__fields__) or bool(_arrays_with_errors(struct, version))


def _element_struct(field: Field) -> Any:
    assert isinstance(field.type, Array)
    assert isinstance(field.type.element, Nested)
    return field.type.element.struct


def _elements_to_answer(source: Struct, version: int) -> list[Any]:
    for field in source.__fields__:
        if version in field.versions and isinstance(field.type, Array) and field.name not in NOT_ANSWERED:
            return list(getattr(source, field.name) or ())
    return []


def _copy_identity(target: Struct, source: Struct, version: int) -> None:
    names = {field.name for field in source.__fields__ if version in field.versions}
    for field in target.__fields__:
        if version not in field.versions or not isinstance(field.type, Fixed | Text):
            continue
        for candidate in next((group for group in SAME_THING if field.name in group), (field.name,)):
            if candidate in names:
                setattr(target, field.name, getattr(source, candidate))


def _set_first(target: Struct, value: object, version: int) -> None:
    """A name or number that the request lists: the first field of its type identifies the element."""
    for field in target.__fields__:
        if version not in field.versions or field.name in ERROR_FIELDS or field.name == MESSAGE_FIELD:
            continue
        is_text, is_int32 = isinstance(field.type, Text), isinstance(field.type, Fixed) and field.type.code == "i"
        if (isinstance(value, str) and is_text) or (isinstance(value, int) and is_int32):
            setattr(target, field.name, value)
            return


def _value_of(struct: Struct, names: tuple[str, ...]) -> object:
    return next((getattr(struct, field.name) for field in struct.__fields__ if field.name in names), None)


def _set_of(struct: Struct, names: tuple[str, ...], value: object) -> None:
    for field in struct.__fields__:
        if field.name in names:
            setattr(struct, field.name, value)


def error_codes(struct: Struct) -> Iterator[int]:
    """All error codes in a response, without NONE."""
    for field in struct.__fields__:
        value = getattr(struct, field.name)
        if field.name in ERROR_FIELDS:
            if value:
                yield value
        elif isinstance(value, list):
            for element in value:
                if isinstance(element, Struct):
                    yield from error_codes(element)
