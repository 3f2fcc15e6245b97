"""Codec: what it accepts and what it refuses, byte by byte."""

import struct
import time

import pytest

from tests.allocations import allocations
from tidelog.errors import UnsupportedVersion
from tidelog.protocol.codec import Part, decode, decoder, encode, encoder
from tidelog.protocol.decoding import MAX_REQUEST_ELEMENTS
from tidelog.protocol.errors import MalformedMessage, UnencodableMessage
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
)
from tidelog.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.primitives import read_varint, varint
from tidelog.runtime.disk import FileSlice, SystemDisk

ALL_TOPICS_9 = b"\0\1\0\0\0"


def produce(records: bytes) -> ProduceRequest:
    return ProduceRequest(
        None, -1, 30_000, [TopicProduceData("t", bytes(16), [PartitionProduceData(0, memoryview(records))])]
    )


def test_stray_bytes_behind_a_request_are_ignored_as_librdkafka_sends_three() -> None:
    request, end = decoder(MetadataRequest, 9)(ALL_TOPICS_9 + b"\0\0\0", 0)
    assert request == MetadataRequest(topics=None)
    assert end == len(ALL_TOPICS_9)


def test_unknown_tagged_fields_are_skipped() -> None:
    assert decode(MetadataRequest, 9, ALL_TOPICS_9[:-1] + b"\2" + b"\5\3abc" + b"\x80\1\0") == MetadataRequest(
        topics=None
    )


def test_an_unknown_tag_beside_a_known_one_is_skipped() -> None:
    encoded = encode(FetchRequest(cluster_id="c"), 12)
    assert encoded.endswith(b"\1\0\2\2c")
    assert decode(FetchRequest, 12, encoded[:-5] + b"\2\0\2\2c\x09\1x").cluster_id == "c"


def test_a_tagged_field_that_does_not_fill_its_size_is_refused() -> None:
    encoded = encode(FetchRequest(cluster_id="c"), 12)
    for wrong in (b"\1\0\1\2c", b"\1\0\3\2cd"):
        with pytest.raises(MalformedMessage, match="size"):
            decode(FetchRequest, 12, encoded[:-5] + wrong)


def test_a_tagged_field_beyond_the_end_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        decode(MetadataRequest, 9, ALL_TOPICS_9[:-1] + b"\1\5\4abc")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, b"\xff\xff\xff\xff"),  # version 0 asks for all topics with an empty array
        (1, b"\0\0\0\1\xff\xff"),
        (9, b"\2\0\0\1\0\0\0"),
    ],
)
def test_null_is_refused_where_a_value_is_needed(version: int, body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="null"):
        decode(MetadataRequest, version, body)


def test_null_is_accepted_where_it_means_something() -> None:
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None
    topic = b"\2" + bytes(16) + b"\0" + b"\0"
    assert decode(MetadataRequest, 10, topic + b"\1\0\0\0").topics == [MetadataRequestTopic(bytes(16), None)]


@pytest.mark.parametrize("version", [8, 9])
def test_a_text_that_is_not_utf_8_is_refused(version: int) -> None:
    for text in ("aß", "aß" * 100):
        broken = encode(MetadataRequest([MetadataRequestTopic(name=text)]), version).replace("ß".encode(), b"\xff\xff")
        with pytest.raises(MalformedMessage, match="utf-8"):
            decode(MetadataRequest, version, broken)


@pytest.mark.parametrize("count", [51, 2**16, 2**31 - 1])
def test_a_count_beyond_the_bytes_that_remain_is_refused(count: int) -> None:
    with pytest.raises(MalformedMessage, match=f"claims {count} elements, 100 bytes remain"):
        decode(MetadataRequest, 0, struct.pack(">i", count) + bytes(100))


def test_elements_may_fill_the_bytes_that_remain() -> None:
    assert decode(MetadataRequest, 0, struct.pack(">i", 50) + bytes(100)).topics == [MetadataRequestTopic(name="")] * 50


def test_a_compact_count_beyond_the_bytes_that_remain_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="claims 4294967294 elements, 100 bytes remain"):
        decode(MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + bytes(100))


@pytest.mark.parametrize("body", [b"\xff\xff\xff\xff\x10" + bytes(9), b"\x80\x80\x80\x80\x80\1" + bytes(9)])
def test_a_variable_length_integer_of_more_than_32_bits_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedMessage, match="32 bits"):
        decode(MetadataRequest, 9, body)


def test_records_that_claim_more_than_the_frame_has_are_refused() -> None:
    for version in (7, 9):
        encoded = encode(produce(b"r" * 100), version)
        with pytest.raises(MalformedMessage):
            decode(ProduceRequest, version, encoded.replace(b"r" * 100, b"r" * 90))


def test_a_frame_of_very_many_small_elements_is_refused_before_they_are_made() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    frame = varint(count + 1) + b"\1\0" * count + b"\1\0\0\0"
    assert_rejected_cheaply(frame)


def test_very_many_tagged_fields_are_refused_before_they_are_read() -> None:
    assert_rejected_cheaply(ALL_TOPICS_9[:-1] + varint(MAX_REQUEST_ELEMENTS + 1) + b"\5\0" * (MAX_REQUEST_ELEMENTS + 1))


def test_many_tagged_fields_count_together() -> None:
    topics = 1000
    tags = b"\5\0" * (MAX_REQUEST_ELEMENTS // topics)
    topic = b"\2t" + varint(MAX_REQUEST_ELEMENTS // topics) + tags
    with pytest.raises(MalformedMessage):
        decode(MetadataRequest, 9, varint(topics + 1) + topic * topics + b"\1\0\0\0")


def assert_rejected_cheaply(frame: bytes) -> None:
    decoder(MetadataRequest, 9)
    started = time.process_time()
    with allocations() as peak, pytest.raises(MalformedMessage, match="claims"):
        decode(MetadataRequest, 9, frame)
    assert peak.bytes < 100_000
    assert time.process_time() - started < 0.5


def test_a_large_request_within_the_limits_is_accepted() -> None:
    request = MetadataRequest([MetadataRequestTopic(name=f"topic-{number}") for number in range(20_000)])
    assert decode(MetadataRequest, 9, encode(request, 9)) == request


@pytest.mark.parametrize("version", [8, 9])
def test_a_text_has_at_most_32767_bytes(version: int) -> None:
    longest = MetadataRequest([MetadataRequestTopic(name="x" * 32767)])
    assert decode(MetadataRequest, version, encode(longest, version)) == longest
    with pytest.raises(UnencodableMessage):
        encode(MetadataRequest([MetadataRequestTopic(name="x" * 32768)]), version)


def test_a_compact_text_longer_than_that_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="claims 32768 bytes"):
        decode(MetadataRequest, 9, b"\2" + varint(32769) + b"x" * 32768 + b"\0\1\0\0\0")


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(UnencodableMessage):
        encode(ProduceRequest(acks=2**15), 9)


def test_a_version_that_was_never_declared_is_refused() -> None:
    for version in (2, 14, -1):
        with pytest.raises(UnsupportedVersion, match="3-13"):
            decoder(ProduceRequest, version)
        with pytest.raises(UnsupportedVersion, match="3-13"):
            encoder(ProduceRequest, version)


def test_records_come_out_as_a_view_into_the_frame() -> None:
    frame = bytearray(encode(produce(b"records"), 9))
    request, _ = decoder(ProduceRequest, 9)(memoryview(frame), 0)
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is frame
    records[0:1] = b"R"
    assert b"Records" in frame


def test_records_go_out_as_the_object_they_are(tmp_path: object) -> None:
    file = SystemDisk().open(f"{tmp_path}/file", "create")
    file.append(b"0123456789")
    slice_ = FileSlice(file, 2, 5)
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=slice_)])])
    parts: list[Part] = []
    encoder(FetchResponse, 12)(response, parts.append)
    assert sum(part is slice_ for part in parts) == 1
    assert b"\x0623456" in encode(response, 12)
    file.close()


def test_a_nullable_struct_is_marked() -> None:
    assert encode(DescribeTopicPartitionsRequest(response_partition_limit=1), 0) == b"\1\0\0\0\1\xff\0"
    request = DescribeTopicPartitionsRequest(response_partition_limit=1, cursor=Cursor("t", 2))
    assert encode(request, 0) == b"\1\0\0\0\1\1\2t\0\0\0\2\0\0"


def test_eligible_leader_replicas_are_empty_and_not_null() -> None:
    assert DescribeTopicPartitionsResponsePartition().eligible_leader_replicas == []


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**21 - 1, 2**21, 2**28, 2**31 - 1, 2**32 - 1])
def test_variable_length_integers_are_read_as_they_were_written(value: int) -> None:
    assert read_varint(varint(value), 0) == (value, len(varint(value)))
