"""Features of consumers in groups whose partitions the broker assigns (KIP-848)."""

from tests.clients.driver import Capability, MemberOptions
from tests.clients.features import Workbench, feature
from tests.clients.group_features import (
    EVERYTHING,
    PARTITIONS,
    member_outlives_its_coordinator,
    members_share_and_take_over,
    new_party,
    produce_everywhere,
)

ASSIGNED = MemberOptions(is_assigned_by_broker=True)


@feature("consumer-group-subscribe", Capability.CONSUMER_PROTOCOL)
def a_member_alone_is_assigned_everything(bench: Workbench) -> None:
    with new_party(bench) as party:
        produce_everywhere(bench, party.topic, 10)
        first = party.join(ASSIGNED)
        party.poll_until_taken(10)
        assert party.assignments() == [EVERYTHING]
        first.commit()
        party.leave(first)
        assert bench.client.committed_offset(party.group, party.topic, 3) == 10
        produce_everywhere(bench, party.topic, 5)
        party.join(ASSIGNED)
        party.poll_until_taken(15)


@feature("consumer-group-rebalance", Capability.CONSUMER_PROTOCOL)
def the_broker_shares_partitions_among_members(bench: Workbench) -> None:
    members_share_and_take_over(bench, ASSIGNED)


@feature("consumer-group-static", Capability.CONSUMER_PROTOCOL, Capability.STATIC_MEMBERSHIP)
def a_static_member_gets_its_partitions_back(bench: Workbench) -> None:
    with new_party(bench) as party:
        first = party.join(MemberOptions(is_assigned_by_broker=True, instance_id="one"))
        party.poll_until_shared(PARTITIONS)
        second = party.join(MemberOptions(is_assigned_by_broker=True, instance_id="two"))
        party.poll_until_shared(2, 2)
        had, others = first.assignment(), second.assignment()
        party.leave(first)
        party.join(MemberOptions(is_assigned_by_broker=True, instance_id="one"))
        party.poll_until_shared(2, 2)
        assert (party.members[-1].assignment(), second.assignment()) == (had, others)


@feature("consumer-group-describe", Capability.CONSUMER_PROTOCOL, Capability.DESCRIBE_GROUPS)
def groups_with_members_of_the_new_protocol_are_described(bench: Workbench) -> None:
    with new_party(bench) as party:
        party.join(ASSIGNED)
        party.poll_until_shared(PARTITIONS)
        party.join(ASSIGNED)
        party.poll_until_shared(2, 2)
        assert party.group in bench.client.list_groups()
        party.poll_until(lambda: bench.client.describe_group(party.group).state == "Stable", "the group is stable")
        assert bench.client.describe_group(party.group).member_count == 2


@feature("consumer-group-migration", Capability.CONSUMER_PROTOCOL, Capability.JOIN_COOPERATIVELY)
def members_of_both_protocols_share_partitions(bench: Workbench) -> None:
    with new_party(bench) as party:
        old = party.join(MemberOptions(cooperative=True))
        party.poll_until_shared(PARTITIONS)
        new = party.join(ASSIGNED)
        party.poll_until_shared(2, 2)
        produce_everywhere(bench, party.topic, 10)
        party.poll_until_taken(10)
        for member in party.members:
            member.commit()
        party.leave(old)
        party.poll_until_shared(PARTITIONS)
        party.join(MemberOptions(cooperative=True))
        party.poll_until_shared(2, 2)
        party.leave(new)
        party.poll_until_shared(PARTITIONS)
        produce_everywhere(bench, party.topic, 5)
        party.poll_until_taken(15)


@feature("consumer-group-through-coordinator-kill", Capability.CONSUMER_PROTOCOL, needs_cluster=True)
def a_consumer_group_outlives_its_coordinator(bench: Workbench) -> None:
    member_outlives_its_coordinator(bench, ASSIGNED)
