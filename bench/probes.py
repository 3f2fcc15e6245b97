"""Asks brokers over raw sockets until they do what is waited for; the same questions for every peer."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from itertools import cycle

from bench import wire
from bench.wire import ERROR_NONE, Connection, RequestRejected, TopicState

RETRY_S = 0.005
"""Often enough to be exact, and seldom enough not to hold up brokers that are still starting on the same cores."""

POLL_S = 0.01
CREATE_LIMIT_S = 120.0


def create_topic(ports: Sequence[int], topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
    create_topic_by(ports, wire.create_topic_frame(topic, partitions, configs or {}), topic, partitions)


def create_topic_by(ports: Sequence[int], request: bytes, topic: str, partitions: int) -> None:
    """Creates a topic and waits until every partition is served; Kafka names leaders before they know of it."""
    with Connection(ports[0]) as connection:
        reader = wire.Reader(connection.ask(request), 12)
        reader.take_string()
        if (error := reader.take("h")) != ERROR_NONE:
            raise RequestRejected(f"creating topic {topic} failed with error {error}: {reader.take_string()}")
    deadline = time.monotonic() + CREATE_LIMIT_S
    question = wire.list_offsets_frame(topic, partitions)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(port)) for port in ports]
        # Each partition is served by its leader only, so the brokers' counts add up.
        while sum(wire.partitions_served(connection.ask(question)) for connection in connections) < partitions:
            check(deadline, f"not all partitions of {topic} are served")
            time.sleep(POLL_S)


def wait_for_first_acknowledged_produce(ports: Sequence[int], topic: str, acks: int, deadline: float) -> None:
    """Connects, has the topic made, and produces one record, trying again at once until it is acknowledged."""
    request = wire.produce_frame(topic, {0: wire.record_batch([b"first"], int(time.time() * 1000))}, acks)
    for port in cycle(ports):
        with contextlib.suppress(OSError), Connection(port, timeout_seconds=5.0) as connection:
            state = wire.topic_state(connection.ask(wire.metadata_frame(topic)))
            leader_port = state.leader_port(0)
            if leader_port is not None and is_acknowledged(request, leader_port):
                return
        check(deadline, "no produce was acknowledged in time")
        time.sleep(RETRY_S)


def is_acknowledged(request: bytes, port: int) -> bool:
    with Connection(port, timeout_seconds=5.0) as connection:
        return wire.produce_error(connection.ask(request)) == ERROR_NONE


def ask_topic(port: int, topic: str) -> TopicState:
    with Connection(port, timeout_seconds=5.0) as connection:
        return wire.topic_state(connection.ask(wire.metadata_frame(topic)))


def wait_until_in_sync(ports: Sequence[int], topic: str, deadline: float) -> TopicState:
    """Until every broker says that all replicas are in sync; what the last of them said."""
    for port in ports:
        while True:
            with contextlib.suppress(OSError):
                state = ask_topic(port, topic)
                if state.in_sync_everywhere and len(state.ports) == len(ports):
                    break
            check(deadline, f"the replicas of {topic} did not all come into sync")
            time.sleep(POLL_S)
    return state


def check(deadline: float, complaint: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(complaint)
