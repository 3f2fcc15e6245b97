import pytest

from tidelog.protocol.codec import decode, encode
from tidelog.protocol.decoding import compile_decoder
from tidelog.protocol.fields import Versions, array, int32, nested, string
from tidelog.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, TopicProduceData
from tidelog.protocol.structs import Request, Struct
from tidelog.types import ZERO_UUID


class Point(Struct):
    x: int = int32()
    y: int = int32(versions="1+", default=-1)
    label: str | None = string(nullable="0+")


class Route(Request, key=999, versions="0-2", flexible="2+"):
    name: str = string(default="unnamed")
    points: list[Point] = array(Point)


class Nothing(Struct):
    value: int = int32(versions="1+")


class Nothings(Request, key=999, versions="0-1"):
    values: list[Nothing] = array(Nothing)


class Pair(Request, key=999, versions="0"):
    point: Point | None = nested(Point)


def test_fields_are_given_by_name_or_in_order_and_have_defaults() -> None:
    assert Point(1, label="a") == Point(x=1, y=-1, label="a")
    assert Route().name == "unnamed"
    assert TopicProduceData().topic_id == ZERO_UUID
    assert PartitionProduceResponse().error_message is None


def test_every_message_has_arrays_of_its_own() -> None:
    first, second = Route(), Route()
    first.points.append(Point())
    assert second.points == []
    assert decode(Route, 0, encode(Route(), 0)).points == []


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        Point(colour="red")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Point().colour = "red"  # type: ignore[attr-defined]


def test_a_message_shows_its_fields() -> None:
    assert repr(Route("home", [Point(1)])) == "Route(name='home', points=[Point(x=1, y=-1, label=None)])"


def test_messages_of_different_classes_differ() -> None:
    assert Point() != Nothing()
    assert Point(1) != Point(2)


def test_a_field_that_the_version_lacks_stays_off_the_wire_and_comes_back_as_its_default() -> None:
    route = Route("r", [Point(1, 2, "a")])
    assert encode(route, 0) == b"\0\1r" + b"\0\0\0\1" + b"\0\0\0\1" + b"\0\1a"
    assert decode(Route, 0, encode(route, 0)) == Route("r", [Point(1, -1, "a")])
    assert decode(Route, 1, encode(route, 1)) == route


def test_flexible_versions_have_compact_lengths_and_room_for_tags() -> None:
    assert encode(Route("r", [Point(1, 2, None)]), 2) == b"\2r" + b"\2" + b"\0\0\0\1\0\0\0\2" + b"\0" + b"\0" + b"\0"


def test_elements_without_bytes_are_refused_when_the_decoder_is_made() -> None:
    with pytest.raises(TypeError, match="no bytes"):
        compile_decoder(Nothings, 0)
    compile_decoder(Nothings, 1)


def test_a_struct_that_cannot_be_absent_is_there_without_a_mark() -> None:
    pair = Pair(Point(1, 2, "a"))
    assert encode(pair, 0) == encode(Route("", [Point(1, 2, "a")]), 0)[2 + 4 :]
    assert decode(Pair, 0, encode(pair, 0)) == Pair(Point(1, -1, "a"))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 13, 32767], [2, -1]), ("0-12", [0, 12], [13]), ("4", [4], [3, 5]), ("none", [], [0])],
)
def test_version_ranges_read_as_in_the_definitions_of_kafka(text: str, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_a_request_knows_its_versions() -> None:
    assert str(ProduceRequest.__versions__) == "3-13"
    assert 9 in ProduceRequest.__flexible__
    assert 8 not in ProduceRequest.__flexible__
