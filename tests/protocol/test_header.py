import pytest

from tidelog.protocol.codec import decode, encode
from tidelog.protocol.errors import MalformedMessage, UnknownApi
from tidelog.protocol.header import (
    RequestHeader,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)
from tidelog.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

PRODUCE_7 = b"\0\0\0\7\0\0\0\x2a\0\2me"
PRODUCE_9 = b"\0\0\0\x09\0\0\0\x2a\0\2me\0"


def test_a_header_before_flexible_versions_ends_with_the_client_id() -> None:
    assert read_request_header(PRODUCE_7 + b"body") == (RequestHeader(0, 7, 42, "me"), len(PRODUCE_7))


def test_a_flexible_header_keeps_the_two_byte_length_of_the_client_id() -> None:
    assert read_request_header(PRODUCE_9 + b"body") == (RequestHeader(0, 9, 42, "me"), len(PRODUCE_9))


def test_a_client_may_have_no_id() -> None:
    header, end = read_request_header(b"\0\3\0\0\0\0\0\1\xff\xff")
    assert header.client_id is None
    assert end == 10


def test_a_long_client_id_is_read_whole() -> None:
    client_id = "é" * 500
    assert read_request_header(request_header(1, 12, 5, client_id))[0].client_id == client_id


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header = PRODUCE_9[:-1] + b"\2" + b"\0\3abc" + b"\x81\1\0"
    assert read_request_header(header + b"body")[1] == len(header)


@pytest.mark.parametrize("header", [PRODUCE_7, PRODUCE_9, PRODUCE_9[:-1] + b"\1\0\3abc"])
def test_a_header_that_ends_early_is_refused_wherever_it_ends(header: bytes) -> None:
    for end in range(len(header)):
        with pytest.raises(MalformedMessage):
            read_request_header(memoryview(header)[:end])


def test_a_client_id_that_is_no_text_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        read_request_header(PRODUCE_7[:-2] + b"\xff\xfe")


def test_a_header_with_more_tagged_fields_than_any_client_has_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="tagged"):
        read_request_header(PRODUCE_9[:-1] + b"\xff\xff\xff\xff\x0f" + bytes(100))


def test_an_unknown_api_is_reported_with_what_is_needed_to_answer() -> None:
    with pytest.raises(UnknownApi) as caught:
        read_request_header(b"\x03\xe7\0\5\0\0\0\x09\0\0")
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (999, 5, 9)


def test_an_api_versions_request_of_the_future_still_has_a_header() -> None:
    header, _ = read_request_header(b"\0\x12\0\x63\0\0\0\1\0\2me\0whatever")
    assert header == RequestHeader(18, 99, 1, "me")


def test_an_api_versions_request_as_librdkafka_sends_it() -> None:
    frame = bytes.fromhex(
        "00120003 00000001 0007 72646b61666b61 00 0b 6c696272646b61666b61 06 322e302e32 00".replace(" ", "")
    )
    header, position = read_request_header(frame)
    assert header == RequestHeader(18, 3, 1, "rdkafka")
    assert decode(ApiVersionsRequest, 3, frame[position:]) == ApiVersionsRequest("librdkafka", "2.0.2")


def test_the_api_versions_response_has_the_oldest_header_in_all_versions() -> None:
    for version in range(5):
        assert response_header(18, version, 7) == b"\0\0\0\7"
    assert encode(ApiVersionsResponse(error_code=35), 3) == b"\0\x23\1\0\0\0\0\0"


def test_other_flexible_responses_have_room_for_tags_in_their_header() -> None:
    assert response_header(3, 8, 7) == b"\0\0\0\7"
    assert response_header(3, 9, 7) == b"\0\0\0\7\0"


@pytest.mark.parametrize(("api_key", "api_version"), [(18, 3), (3, 8), (3, 9)])
def test_a_response_header_is_read_as_it_was_written(api_key: int, api_version: int) -> None:
    header = response_header(api_key, api_version, 123)
    assert read_response_header(header + b"body", api_key, api_version) == (123, len(header))
    with pytest.raises(MalformedMessage):
        read_response_header(header[:-1], api_key, api_version)


@pytest.mark.parametrize("client_id", [None, "", "me"])
@pytest.mark.parametrize(("api_key", "api_version"), [(0, 8), (0, 9), (75, 0)])
def test_a_request_header_is_read_as_it_was_written(api_key: int, api_version: int, client_id: str | None) -> None:
    header = request_header(api_key, api_version, 5, client_id)
    assert read_request_header(header) == (RequestHeader(api_key, api_version, 5, client_id), len(header))
