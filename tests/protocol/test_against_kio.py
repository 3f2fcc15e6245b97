"""The bytes and their meaning are those of kio, an independent implementation made from Kafka's own definitions."""

import datetime
import io
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import UnknownAPIKey, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tests.protocol.samples import ALL_MESSAGES, FIRST_OWN_TAG, Samples, any_integer, for_messages
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.fields import Field
from tidelog.protocol.structs import Message, Request, Struct
from tidelog.types import ZERO_UUID

MESSAGES_EACH = 10
ERROR_CODES = sorted(code.value for code in ErrorCode)
UNKNOWN_TO_KIO = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}
"""Kafka 4 has them no longer; `test_controller_messages.py` compares them with the bytes of Kafka 3.9."""
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def integer_that_kio_takes(random: Random, field: Field, code: str) -> int:
    """kio turns error codes, durations and timestamps into Python's types, which cannot hold every number."""
    if field.name.endswith("error_code"):
        return random.choice(ERROR_CODES)
    if field.name.endswith("_ms") or "timestamp" in field.name:
        return random.randrange(2**31)
    return any_integer(random, field, code)


def kio_entity(message: type[Message], version: int) -> Any:
    load = load_request_schema if issubclass(message, Request) else load_response_schema
    return load(message.__api_key__, version)


@for_messages([(message, version) for message, version in ALL_MESSAGES if message.__api_key__ not in UNKNOWN_TO_KIO])
def test_bytes_and_values_are_those_of_kio(message: type[Message], version: int) -> None:
    entity = kio_entity(message, version)
    read, write = entity_reader(entity), entity_writer(entity)
    samples = Samples(seed=version, integer=integer_that_kio_takes, last_tag=FIRST_OWN_TAG - 1)
    for _ in range(MESSAGES_EACH):
        sample = samples.message(message, version)
        encoded = encode(sample, version)
        kio_message, size = read(encoded, 0)
        assert size == len(encoded)
        assert_same(sample, kio_message, version)
        buffer = io.BytesIO()
        write(buffer, kio_message)
        assert buffer.getvalue() == encoded
        assert decode(message, version, buffer.getvalue()) == sample


@pytest.mark.parametrize("key", UNKNOWN_TO_KIO, ids=UNKNOWN_TO_KIO.values())
def test_kio_lacks_what_is_not_compared_with_it(key: int) -> None:
    with pytest.raises(UnknownAPIKey):
        load_request_schema(key, API_KEYS[key].versions.first)


def assert_same(ours: Struct, theirs: Any, version: int) -> None:
    for field in ours.__fields__:
        if version in field.versions and (field.tag is None or field.tag < FIRST_OWN_TAG):
            name = field.name if hasattr(theirs, field.name) else field.name.removesuffix("_ms")
            assert_same_value(field, getattr(ours, field.name), getattr(theirs, name), version)


def assert_same_value(field: Field, ours: Any, theirs: Any, version: int) -> None:
    if isinstance(ours, list):
        assert len(ours) == len(theirs), field
        for our_element, their_element in zip(ours, theirs, strict=True):
            assert_same_value(field, our_element, their_element, version)
    elif isinstance(ours, Struct):
        assert_same(ours, theirs, version)
    elif ours is None and field.tag is not None and theirs is not None:
        assert theirs == type(theirs)(), field  # an absent struct is one of defaults to kio
    elif theirs is None and ours is not None:
        assert ours == ZERO_UUID, field
    else:
        assert ours == plain(theirs), field


def plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, ErrorCode):
        return value.value
    return value
