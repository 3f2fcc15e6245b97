"""Features of consumers in groups."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.clients.driver import (
    TIMEOUT_S,
    Capability,
    Consumed,
    GroupMember,
    MemberOptions,
    ProducerOptions,
)
from tests.clients.features import Workbench, assert_refused, feature, numbered
from tidelog.replicated.partition_keys import partition_for

NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FENCED_INSTANCE_ID = 82

PARTITIONS = 4
OFFSETS_TOPIC = "__consumer_offsets"
EVERYTHING = frozenset(range(PARTITIONS))


class Party:
    """Members of one group, polled in turn; what each has read is kept by partition."""

    def __init__(self, bench: Workbench, topic: str) -> None:
        self._bench = bench
        self._stack = ExitStack()
        self.topic = topic
        self.group = bench.new_name()
        self.members: list[GroupMember] = []
        self.taken: dict[int, list[Consumed]] = {partition: [] for partition in range(PARTITIONS)}

    def __enter__(self) -> "Party":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self, options: MemberOptions | None = None) -> GroupMember:
        member = self._bench.client.join_group(self.group, self.topic, options or MemberOptions())
        self.members.append(member)
        self._stack.callback(self._close_if_open, member)
        return member

    def leave(self, member: GroupMember) -> None:
        self.members.remove(member)
        member.close()

    def _close_if_open(self, member: GroupMember) -> None:
        if member in self.members:
            self.leave(member)

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {what}; {self.assignments()}"
            for member in self.members:
                for partition, record in member.poll():
                    self.taken[partition].append(record)

    def poll_until_shared(self, *counts: int) -> None:
        """Every partition has one owner, and the members have so many of them."""
        self.poll_until(lambda: self._is_shared(counts), f"the partitions are shared as {counts}")

    def _is_shared(self, counts: Sequence[int]) -> bool:
        assignments = self.assignments()
        owned = [partition for partitions in assignments for partition in partitions]
        return sorted(owned) == sorted(EVERYTHING) and sorted(map(len, assignments)) == sorted(counts)

    def assignments(self) -> list[frozenset[int]]:
        return [member.assignment() for member in self.members]

    def has_everything_up_to(self, end: int) -> Callable[[], bool]:
        return lambda: all({one.offset for one in records} >= set(range(end)) for records in self.taken.values())

    def poll_until_taken(self, count: int) -> None:
        """So many records of each partition, each once and in order."""
        self.poll_until(
            lambda: all(len(records) >= count for records in self.taken.values()), f"{count} records of each partition"
        )
        for partition, records in self.taken.items():
            assert [record.offset for record in records] == list(range(count)), f"partition {partition}"


def new_party(bench: Workbench) -> Party:
    return Party(bench, bench.new_topic(partitions=PARTITIONS))


def produce_everywhere(bench: Workbench, topic: str, count: int) -> None:
    for partition in range(PARTITIONS):
        bench.helper.produce(topic, numbered(count), ProducerOptions(), partition)


@feature("group-subscribe", Capability.JOIN_GROUPS)
def a_member_alone_reads_everything(bench: Workbench) -> None:
    with new_party(bench) as party:
        produce_everywhere(bench, party.topic, 10)
        party.join()
        party.poll_until_taken(10)
        assert party.assignments() == [EVERYTHING]
        produce_everywhere(bench, party.topic, 5)
        party.poll_until_taken(15)


@feature("group-resume", Capability.JOIN_GROUPS)
def the_next_member_goes_on_where_the_last_one_committed(bench: Workbench) -> None:
    with new_party(bench) as party:
        produce_everywhere(bench, party.topic, 10)
        first = party.join()
        party.poll_until_taken(10)
        first.commit()
        party.leave(first)
        assert bench.client.committed_offset(party.group, party.topic, 3) == 10
        produce_everywhere(bench, party.topic, 5)
        party.join()
        party.poll_until_taken(15)


@feature("group-take-turns", Capability.READ_IN_GROUPS)
def members_read_in_turns(bench: Workbench) -> None:
    topic, group = bench.new_topic(partitions=PARTITIONS), bench.new_name()
    for count, expected in ((5, [0, 1, 2, 3, 4]), (2, [5, 6]), (1, [7])):
        produce_everywhere(bench, topic, count)
        found = bench.client.read_in_group(group, topic, PARTITIONS * count)
        assert sorted(record.offset for record in found) == sorted(expected * PARTITIONS)


@feature("group-repeat", Capability.JOIN_GROUPS)
def what_was_not_committed_is_read_again(bench: Workbench) -> None:
    with new_party(bench) as party:
        produce_everywhere(bench, party.topic, 3)
        first = party.join()
        party.poll_until_taken(3)
        party.leave(first)
        party.taken = {partition: [] for partition in range(PARTITIONS)}
        party.join()
        party.poll_until_taken(3)


def members_share_and_take_over(bench: Workbench, options: MemberOptions) -> None:
    with new_party(bench) as party:
        first = party.join(options)
        party.poll_until_shared(PARTITIONS)
        second = party.join(options)
        party.poll_until_shared(2, 2)
        produce_everywhere(bench, party.topic, 10)
        party.poll_until_taken(10)
        for member in party.members:
            member.commit()
        party.leave(first)
        party.poll_until_shared(PARTITIONS)
        assert second.assignment() == EVERYTHING
        produce_everywhere(bench, party.topic, 5)
        party.poll_until_taken(15)


@feature("group-rebalance", Capability.JOIN_GROUPS)
def members_share_partitions_and_take_them_over(bench: Workbench) -> None:
    members_share_and_take_over(bench, MemberOptions())


@feature("group-rebalance-cooperative", Capability.JOIN_GROUPS, Capability.JOIN_COOPERATIVELY)
def members_give_up_only_what_others_are_to_have(bench: Workbench) -> None:
    members_share_and_take_over(bench, MemberOptions(cooperative=True))


@feature("group-static", Capability.JOIN_GROUPS, Capability.STATIC_MEMBERSHIP)
def a_static_member_comes_back_as_the_same(bench: Workbench) -> None:
    with new_party(bench) as party:
        first = party.join(MemberOptions(instance_id="one"))
        party.poll_until_shared(PARTITIONS)
        second = party.join(MemberOptions(instance_id="two"))
        party.poll_until_shared(2, 2)
        had, others = first.assignment(), second.assignment()
        party.leave(first)
        party.join(MemberOptions(instance_id="one"))
        party.poll_until_shared(2, 2)
        assert (party.members[-1].assignment(), second.assignment()) == (had, others)


@feature("group-commit-by-hand", Capability.JOIN_GROUPS)
def offsets_are_committed_without_membership(bench: Workbench) -> None:
    topic, group = bench.new_topic(), bench.new_name()
    assert bench.client.committed_offset(group, topic, 0) is None
    bench.helper.produce(topic, numbered(50), ProducerOptions())
    bench.client.commit_offset(group, topic, 0, 42)
    assert bench.client.committed_offset(group, topic, 0) == 42
    bench.client.commit_offset(group, topic, 0, 17)
    assert bench.client.committed_offset(group, topic, 0) == 17


@feature("group-describe", Capability.JOIN_GROUPS, Capability.DESCRIBE_GROUPS)
def groups_are_listed_and_described(bench: Workbench) -> None:
    with new_party(bench) as party:
        member = party.join()
        party.poll_until_shared(PARTITIONS)
        party.join()
        party.poll_until_shared(2, 2)
        assert party.group in bench.client.list_groups()
        described = bench.client.describe_group(party.group)
        assert (described.state, described.member_count) == ("Stable", 2)
        party.leave(member)
        party.poll_until_shared(PARTITIONS)
        assert bench.client.describe_group(party.group).member_count == 1


@feature("group-delete", Capability.JOIN_GROUPS, Capability.DELETE_GROUPS)
def groups_without_members_are_deleted(bench: Workbench) -> None:
    with new_party(bench) as party:
        produce_everywhere(bench, party.topic, 1)
        member = party.join()
        party.poll_until_taken(1)
        member.commit()
        assert_refused(NON_EMPTY_GROUP, lambda: bench.client.delete_group(party.group))
        party.leave(member)
        bench.client.delete_group(party.group)
        assert party.group not in bench.client.list_groups()
        assert bench.client.committed_offset(party.group, party.topic, 0) is None
        assert_refused(GROUP_ID_NOT_FOUND, lambda: bench.client.delete_group(party.group))


@feature("group-through-coordinator-kill", Capability.JOIN_GROUPS, needs_cluster=True)
def a_group_outlives_its_coordinator(bench: Workbench) -> None:
    member_outlives_its_coordinator(bench, MemberOptions())


def member_outlives_its_coordinator(bench: Workbench, options: MemberOptions) -> None:
    with new_party(bench) as party:
        produce_everywhere(bench, party.topic, 10)
        member = party.join(options)
        party.poll_until_taken(10)
        member.commit()
        bench.wait_for_replicas(OFFSETS_TOPIC)
        partition = partition_for(party.group, len(bench.helper.describe_topic(OFFSETS_TOPIC)))
        with ThreadPoolExecutor(1) as others:
            killing = others.submit(bench.kill_leader_and_start_it_again, OFFSETS_TOPIC, partition)
            party.poll_until(killing.done, "the coordinator is killed and started again")
            killing.result()
        produce_everywhere(bench, party.topic, 5)
        party.poll_until(party.has_everything_up_to(15), "everything written since the coordinator was killed")
        for records in party.taken.values():
            offsets = [record.offset for record in records]
            assert offsets[:10] == list(range(10)), offsets
            assert min(offsets[10:]) == 10, "what was committed is not read again"
        member.commit()
        assert bench.helper.committed_offset(party.group, party.topic, 0) == 15
    bench.wait_for_replicas(party.topic)
