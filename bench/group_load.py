"""Many groups with many members, over raw sockets: they join, give signs of life, commit, and are looked for again."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench import group_wire, probes, wire
from bench.exchange import NO_LIMIT, Exchange
from bench.group_wire import Joined
from bench.wire import ERROR_NONE, Connection, RequestRejected

GROUPS_AT_A_TIME = 250
"""Of those that join at once; each of their members has a connection of its own, which waits for the others."""

RETRY_S = 0.005
LIMIT_S = 60.0
OFFSETS_TOPIC_PARTITIONS = 50
SETTLING_PAUSE_S = 0.1
PASSING = {14, 15, 16}
"""A coordinator loads, is not available, or is not (or not for now) this broker."""

REPETITIONS = 20
BACKOFF_S = 0.2


def name_of(group: int) -> str:
    return f"group-{group:05}"


def check_all(what: str, errors: Iterable[int]) -> None:
    failed = [error for error in errors if error != ERROR_NONE]
    if failed:
        raise RequestRejected(f"{len(failed)} of {what} failed, the first with error {failed[0]}")


def ask_patiently(
    exchange: Exchange, requests: Sequence[Sequence[bytes]], error_of: Callable[[bytes], int], window: int = NO_LIMIT
) -> list[list[bytes]]:
    """As clients do, asks again where a coordinator could not answer: the machine may be busy with other things."""
    responses = exchange.ask_all(requests, window)
    for _ in range(REPETITIONS):
        rejected = [
            [place for place, response in enumerate(answered) if error_of(response) in PASSING]
            for answered in responses
        ]
        if not any(rejected):
            break
        time.sleep(BACKOFF_S)
        again = exchange.ask_all(
            [[asked[place] for place in places] for asked, places in zip(requests, rejected, strict=True)], window
        )
        for answered, places, late in zip(responses, rejected, again, strict=False):
            for place, response in zip(places, late, strict=True):
                answered[place] = response
    return responses


def find_coordinator(ports: Sequence[int], key: str, key_type: int = group_wire.GROUP) -> int:
    """Its port; waits until there is one."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        with Connection(ports[0]) as connection:
            found = group_wire.coordinator_of(connection.ask(group_wire.find_coordinator_frame(key, key_type)))
        if found.error == ERROR_NONE:
            return found.port
        probes.check(deadline, f"no coordinator of {key} was found, error {found.error}")
        time.sleep(RETRY_S)


@dataclass
class ClassicGroups:
    """Groups on one broker, of as many members each; member `m` of group `g` uses connection `(g, m)` of a batch."""

    exchange: Exchange
    topic: str
    members_per_group: int
    members: list[list[Joined]] = field(default_factory=list)
    """By group."""

    def join(self, groups: int) -> None:
        for first in range(0, groups, GROUPS_AT_A_TIME):
            self._join_batch(range(first, min(groups, first + GROUPS_AT_A_TIME)))

    def _join_batch(self, groups: Sequence[int]) -> None:
        requests = [
            [group_wire.join_group_frame(name_of(group), self.topic)]
            for group in groups
            for _ in range(self.members_per_group)
        ]
        responses = ask_patiently(self.exchange, requests, lambda response: group_wire.joined(response).error)
        joined = [group_wire.joined(each[0]) for each in responses]
        check_all("joins", (member.error for member in joined))
        count = self.members_per_group
        found = [joined[position : position + count] for position in range(0, len(joined), count)]
        syncs = [
            [group_wire.sync_group_frame(name_of(group), member, self._assignments(member))]
            for group, members in zip(groups, found, strict=True)
            for member in members
        ]
        responses = self.exchange.ask_all(syncs)
        check_all("syncs", (group_wire.error_after_throttle_time(each[0]) for each in responses))
        self.members += found

    def _assignments(self, member: Joined) -> dict[str, bytes]:
        """By the leader of the group; the others wait for theirs."""
        partitions = self.partitions_of
        return {
            member_id: group_wire.assignment(self.topic, partitions(index))
            for index, member_id in enumerate(member.members)
        }

    def partitions_of(self, index: int, per_member: int = 10) -> list[int]:
        return list(range(index * per_member, (index + 1) * per_member))

    def spread(self, frame_of: Callable[[int, int], bytes], count: int) -> list[list[bytes]]:
        """As many requests of members as were asked for, group by group, each over its connection."""
        total = len(self.members) * self.members_per_group
        connections = min(GROUPS_AT_A_TIME, len(self.members)) * self.members_per_group
        requests: list[list[bytes]] = [[] for _ in range(connections)]
        for number in range(count):
            group, index = divmod(number % total, self.members_per_group)
            requests[number % connections].append(frame_of(group, index))
        return requests

    def heartbeat_frame(self, group: int, index: int) -> bytes:
        return group_wire.heartbeat_frame(name_of(group), self.members[group][index])

    def commit_frame(self, group: int, index: int, offset: int, partitions: int) -> bytes:
        member = self.members[group][index]
        offsets = dict.fromkeys(self.partitions_of(index)[:partitions], offset)
        return group_wire.offset_commit_frame(name_of(group), self.topic, offsets, member.member_id, member.generation)


def connections_for(groups: int, members_per_group: int) -> int:
    return min(groups, GROUPS_AT_A_TIME) * members_per_group


@dataclass
class ConsumerGroups:
    """Groups of the consumer protocol (KIP-848) on one broker, all members over a few connections."""

    exchange: Exchange
    connections: int
    topic: str
    members_per_group: int
    groups: int

    def __post_init__(self) -> None:
        names = [f"consumer-{name_of(group)}" for group in range(self.groups)]
        self._keys = [name for name in names for _ in range(self.members_per_group)]
        self._members: list[tuple[str, int]] = []

    def join(self) -> None:
        frames = [group_wire.consumer_join_frame(key, self.topic) for key in self._keys]
        self._members = self._ask(frames)

    def settle(self) -> None:
        """Heartbeats until all members of each group have an assignment made after they joined, and the same one."""
        deadline = time.monotonic() + LIMIT_S
        joined = self._epochs()
        while True:
            self._members = self._ask(self.heartbeat_frames(len(self._members)))
            epochs = self._epochs()
            if all(len(epochs[key]) == 1 and min(epochs[key]) > max(joined[key]) for key in joined):
                return
            probes.check(deadline, "consumer groups did not settle")
            time.sleep(SETTLING_PAUSE_S)

    def _epochs(self) -> dict[str, set[int]]:
        """Of the members of each group."""
        found: dict[str, set[int]] = {}
        for key, (_, epoch) in zip(self._keys, self._members, strict=True):
            found.setdefault(key, set()).add(epoch)
        return found

    def heartbeat_frames(self, count: int) -> list[bytes]:
        pairs = list(zip(self._keys, self._members, strict=True))
        frames = [group_wire.consumer_heartbeat_frame(key, *member) for key, member in pairs]
        return [frames[number % len(frames)] for number in range(count)]

    def spread(self, frames: Sequence[bytes]) -> list[list[bytes]]:
        return [list(frames[index :: self.connections]) for index in range(self.connections)]

    def _ask(self, frames: Sequence[bytes]) -> list[tuple[str, int]]:
        responses = ask_patiently(
            self.exchange, self.spread(frames), lambda response: group_wire.member_of(response).error
        )
        found: list[tuple[str, int]] = [("", 0)] * len(frames)
        for index, answered in enumerate(responses):
            members = [group_wire.member_of(response) for response in answered]
            check_all("heartbeats of consumer groups", (member.error for member in members))
            found[index :: self.connections] = [(member.member_id, member.epoch) for member in members]
        return found


# -- groups without members, on any broker


def commit_without_members(ports: Sequence[int], groups: int, topic: str, partitions: int) -> None:
    """Each group commits an offset of every partition in one request to its coordinator."""
    coordinators = [find_coordinator(ports, name_of(group)) for group in range(groups)]
    offsets = dict.fromkeys(range(partitions), 1)
    for port in set(coordinators):
        frames = [
            group_wire.offset_commit_frame(name_of(group), topic, offsets)
            for group, its_port in enumerate(coordinators)
            if its_port == port
        ]
        with Connection(port) as connection:
            check_all("commits", [group_wire.offset_commit_error(connection.ask(frame)) for frame in frames])


def group_of_each_partition(groups: int) -> list[int]:
    """One of the groups of each partition of the topic with their offsets: all others of it are loaded with it."""
    return list({partition_of(name_of(group)): group for group in range(groups)}.values())


def partition_of(group: str) -> int:
    code = 0
    for character in group:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return min(code, 2**32 - code) % OFFSETS_TOPIC_PARTITIONS


def wait_until_loaded(ports: Sequence[int], groups: Sequence[int], offsets: int) -> None:
    """Until a coordinator answers for every one of the groups with all its offsets."""
    deadline = time.monotonic() + LIMIT_S
    for group in groups:
        while not _is_loaded(ports, name_of(group), offsets):
            probes.check(deadline, f"no coordinator answers for {name_of(group)}")
            time.sleep(RETRY_S)


def _is_loaded(ports: Sequence[int], group: str, offsets: int) -> bool:
    try:
        with Connection(ports[0], timeout_seconds=5.0) as connection:
            found = group_wire.coordinator_of(connection.ask(group_wire.find_coordinator_frame(group)))
        if found.error != ERROR_NONE or found.port not in ports:
            return False
        with Connection(found.port, timeout_seconds=5.0) as connection:
            error, count = group_wire.offsets_fetched(connection.ask(group_wire.offset_fetch_frame(group)))
    except OSError:
        return False
    if error == ERROR_NONE and count < offsets:
        raise RequestRejected(f"{group} has {count} of {offsets} offsets")
    return error == ERROR_NONE


# -- the first message


class FirstMessage(NamedTuple):
    """When each step on the way of the first message through a group was done."""

    acknowledged: float
    coordinator_found: float
    joined: float
    received: float


def wait_for_first_message(ports: Sequence[int], topic: str, deadline: float) -> FirstMessage:
    """Writes a record, and has a member of a new group read it; every step is repeated until it is done."""
    probes.wait_for_first_acknowledged_produce(ports, topic, wire.ACKS_ALL, deadline)
    acknowledged = time.monotonic()
    port = find_coordinator(ports, topic)
    coordinator_found = time.monotonic()
    with Connection(port) as connection:
        member = _join_alone(connection, topic, deadline)
        assignments = {member.member_id: group_wire.assignment(topic, [0])}
        response = connection.ask(group_wire.sync_group_frame(topic, member, assignments))
        check_all("syncs", [group_wire.error_after_throttle_time(response)])
        error, _ = group_wire.offsets_fetched(connection.ask(group_wire.offset_fetch_frame(topic)))
        check_all("questions for offsets", [error])
    joined = time.monotonic()
    leader_port = probes.ask_topic(port, topic).leader_port(0)
    assert leader_port is not None
    with Connection(leader_port) as connection:
        while b"first" not in connection.ask(wire.fetch_frame(topic, 0, 0)):
            probes.check(deadline, "the first message did not arrive")
            time.sleep(RETRY_S)
    return FirstMessage(acknowledged, coordinator_found, joined, time.monotonic())


def _join_alone(connection: Connection, group: str, deadline: float) -> Joined:
    while True:
        member = group_wire.joined(connection.ask(group_wire.join_group_frame(group, group)))
        if member.error == ERROR_NONE:
            return member
        probes.check(deadline, f"joining failed with error {member.error}")
        time.sleep(RETRY_S)
