"""Requests and responses of the benchmark of moves, over raw sockets."""

from typing import Self

import pytest

from bench import move_wire
from bench.move_workloads import SOURCES, TARGETS, throttled_replicas
from bench.wire import RequestRejected
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.protocol.structs import Response

RESPONSE_HEADER = bytes(5)
REQUEST_HEADER_BYTES = 4 + 10 + len(b"bench") + 1


class Broker:
    """Stands for the connection to a broker with canned responses, by port."""

    responses: dict[int, Response]
    requests: list[bytes]

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, request: bytes) -> bytes:
        self.requests.append(request)
        return RESPONSE_HEADER + encode(self.responses[self._port], 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> type[Broker]:
    Broker.responses, Broker.requests = {}, []
    monkeypatch.setattr(move_wire, "Connection", Broker)
    return Broker


def altered(error: int, of_partition: int = 0) -> AlterPartitionReassignmentsResponse:
    partition = ReassignablePartitionResponse(partition_index=1, error_code=of_partition, error_message="no")
    topic = ReassignableTopicResponse(name="t", partitions=[partition])
    return AlterPartitionReassignmentsResponse(error_code=error, error_message=None, responses=[topic])


def test_a_move_is_asked_of_the_broker_that_is_the_controller(broker: type[Broker]) -> None:
    broker.responses = {1: altered(move_wire.NOT_CONTROLLER), 2: altered(0)}
    move_wire.alter_reassignments([1, 2], "t", {1: (3, 2)})
    assert len(broker.requests) == 2
    sent = decode(AlterPartitionReassignmentsRequest, 0, memoryview(broker.requests[1])[REQUEST_HEADER_BYTES:])
    assert [(one.partition_index, one.replicas) for one in sent.topics[0].partitions] == [(1, [3, 2])]


@pytest.mark.parametrize("response", [altered(7), altered(0, of_partition=39), altered(move_wire.NOT_CONTROLLER)])
def test_a_move_that_is_refused_fails_the_run(broker: type[Broker], response: Response) -> None:
    broker.responses = {1: response}
    with pytest.raises(RequestRejected):
        move_wire.alter_reassignments([1], "t", {1: (3,)})


def test_topics_under_reassignment_are_counted(broker: type[Broker]) -> None:
    moving = OngoingTopicReassignment(name="t", partitions=[OngoingPartitionReassignment(partition_index=0)])
    broker.responses = {1: ListPartitionReassignmentsResponse(topics=[moving])}
    assert move_wire.topics_under_reassignment([1]) == 1
    broker.responses = {1: ListPartitionReassignmentsResponse(topics=[])}
    assert move_wire.topics_under_reassignment([1]) == 0


def test_the_throttle_names_all_sources_and_the_target() -> None:
    lists = throttled_replicas()
    assert len(lists["leader.replication.throttled.replicas"].split(",")) == 2 * len(SOURCES)
    assert lists["follower.replication.throttled.replicas"].split(",") == [f"{partition}:3" for partition in TARGETS]
