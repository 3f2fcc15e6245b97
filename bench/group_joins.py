"""CPU time of consumer group (KIP-848) joins, heartbeats and replay in one process, without sockets.

`python -m bench.group_joins`: 500 members join one group of 1,000 partitions, and 1,000 members join 100 groups. Each
member sends heartbeats until it has its partitions, as clients do. Then all send idle heartbeats, and the records of
the groups are replayed as by the next coordinator. Calls of Python functions are counted besides: they do not depend
on the machine.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from typing import Any

from tidelog.cluster.image import ClusterImage, PartitionRegistration, Topic
from tidelog.groups.group import Caller, GroupSettings
from tidelog.groups.machine import GroupMachine
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.replicated.memory_shard import MemoryReply, MemoryShard
from tidelog.runtime.randomness import SeededRandomness

CALLER = Caller("client", "/127.0.0.1", 1)
BETWEEN_ROUNDS_MS = 1_000
MOST_ROUNDS = 30


class Member:
    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0
        self.owned: list[TopicPartitions] | None = None
        self.has_changed = False

    def request(self) -> ConsumerGroupHeartbeatRequest:
        if self.epoch == 0:
            return ConsumerGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["orders"],
                topic_partitions=[],
            )
        owned, self.has_changed = (self.owned if self.has_changed else None), False
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, topic_partitions=owned
        )

    def take(self, response: Any) -> bool:
        """Whether the response has anything new."""
        assert isinstance(response, ConsumerGroupHeartbeatResponse), response
        is_new = response.assignment is not None or response.member_epoch != self.epoch
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned, self.has_changed = list(response.assignment.topic_partitions), True
        return is_new


class Storm:
    """Members of groups that all join at once."""

    def __init__(self, groups: int, members_per_group: int, partitions: int) -> None:
        registered = tuple(PartitionRegistration(index, (1,), 1, 0, (1,)) for index in range(partitions))
        image = ClusterImage("cluster").with_topics(Topic("orders", b"o" * 16, registered))
        settings = GroupSettings(group_consumer_max_size=100_000)
        self.shard = MemoryShard(
            lambda: GroupMachine(settings=lambda: settings, image=lambda: image, randomness=SeededRandomness(1))
        )
        self.members = [
            Member(f"group-{group}", f"member-{number:05}")
            for number in range(members_per_group)
            for group in range(groups)
        ]
        self.heartbeats = 0

    def join(self) -> None:
        for _ in range(MOST_ROUNDS):
            changes = sum(self._send(member) for member in self.members)
            self.shard.advance(BETWEEN_ROUNDS_MS)
            if not changes:
                return
        raise AssertionError("the groups do not settle")

    def stay(self) -> None:
        for member in self.members:
            self._send(member)

    def reload(self) -> None:
        self.shard.reloaded()

    def _send(self, member: Member) -> bool:
        reply, request = MemoryReply(), member.request()
        self.heartbeats += 1
        self.shard.perform(lambda machine, effects: machine.consumer_heartbeat(request, CALLER, reply, effects))
        return member.take(reply.outcome)

    @property
    def records(self) -> int:
        return sum(len(getattr(step, "records", ())) for step in self.shard.log)


def cpu_and_calls(make: Callable[[], Callable[[], None]], rounds: int) -> tuple[float, int]:
    """The least CPU seconds of the rounds, and the number of calls."""
    seconds = []
    for _ in range(rounds):
        work = make()
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    work, profile = make(), cProfile.Profile()
    profile.runcall(work)
    return min(seconds), pstats.Stats(profile).total_calls  # type: ignore[attr-defined]


def measure(groups: int, members_per_group: int, partitions: int, rounds: int) -> None:
    def storm() -> Storm:
        return Storm(groups, members_per_group, partitions)

    joined = storm()
    joined.join()
    count, heartbeats, records = len(joined.members), joined.heartbeats, joined.records
    print(f"{groups} groups of {members_per_group} members, {partitions} partitions each:", end=" ")
    print(f"{heartbeats / count:.1f} heartbeats and {records / count:.1f} records per member until all have theirs")
    for name, per, make in (
        ("join", count, lambda: storm().join),
        ("heartbeat", count, lambda: joined.stay),
        ("replay of a record", records, lambda: joined.reload),
    ):
        seconds, calls = cpu_and_calls(make, rounds)
        print(f"  {name}: {seconds / per * 1e6:.1f} us of CPU, {calls / per:.1f} calls", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measure(1, 500, 1_000, options.rounds)
    measure(100, 10, 100, options.rounds)


if __name__ == "__main__":
    main()
