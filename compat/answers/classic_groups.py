"""Membership of classic groups: joining, synchronising, leaving, static members, limits and timeouts."""

import time

from compat.answers.conversation import A_MOMENT_S, Conversation, Line, chapter, wait_until
from compat.answers.coordinators import GROUP, find_coordinators
from compat.answers.requests import heartbeat, join, leave, offset_commit, subscription, sync
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest

GROUP_SIZE = 5
SHORT_SESSION_MS = 6_000
SHORT_REBALANCE_MS = 3_000
SLACK_MS = 1_000


def join_as(talk: Conversation, what: str, request: JoinGroupRequest, version: int, line: Line, name: str) -> str:
    """The id that the member is given."""
    response = talk.ask(what, request, version, line)
    talk.name(response.member_id, name)
    member_id: str = response.member_id
    return member_id


def state_of(talk: Conversation, group: str) -> str:
    response = talk.ask_quietly(DescribeGroupsRequest(groups=[group]), 5, DescribeGroupsResponse)
    return response.groups[0].group_state


@chapter("members that no classic group knows")
def strangers(talk: Conversation) -> None:
    group = talk.fresh("group")
    find_coordinators(talk, GROUP, group)
    for version in range(10):
        talk.ask(f"join without a group, v{version}", join(""), version)
    for version in (0, 9):
        for timeout in (10, 5_999, 2_000_000, 0, -1):
            request = join(group, session_timeout_ms=timeout)
            talk.ask(f"join with a session of {timeout} ms, v{version}", request, version)
    talk.ask("join as an unknown member", join(group, "nobody"), 9)
    talk.ask("join as an unknown static member", join(group, "nobody", "instance"), 9)
    for version in (0, 5, 7, 9):
        talk.ask(f"join without a protocol, v{version}", join(f"{group}-{version}", protocols=()), version)
    talk.ask("join without a type of protocol", join(f"{group}-y", protocol_type=""), 9)
    for version in range(6):
        talk.ask(f"sync an unknown group, v{version}", sync("nobody", 1, "member"), version)
        talk.ask(f"sync without a group, v{version}", sync("", 1, "member"), version)
        members = (("member", "instance"),)
        talk.ask(f"leave an unknown group, v{version}", leave("nobody", *members, member_id="member"), version)
        talk.ask(f"leave without a group, v{version}", leave("", *members, member_id="member"), version)
    without_protocol = sync("nobody", 1, "member", protocol_type=None, protocol_name=None)
    talk.ask("sync without a protocol", without_protocol, 5)
    for version in range(5):
        talk.ask(f"heartbeat to an unknown group, v{version}", heartbeat("nobody", 1, "member"), version)
        talk.ask(f"heartbeat without a group, v{version}", heartbeat("", 1, "member"), version)
    pending = join_as(talk, "join, and be given an id", join(group), 9, talk.main, "pending")
    talk.ask("heartbeat of a member that has only an id", heartbeat(group, 0, pending), 4)
    talk.ask("sync of a member that has only an id", sync(group, 0, pending), 5)
    talk.ask("commit of a member that has only an id", offset_commit(group, {}, 0, pending), 9)
    talk.ask("leave with nothing but an id", leave(group, (pending, None)), 5)
    talk.ask("join with an id that was given back", join(group, pending), 9)


@chapter("a classic group and its rebalances")
def dynamic_members(talk: Conversation) -> None:
    group = talk.fresh("group")
    find_coordinators(talk, GROUP, group)
    first, second, third = talk.line("alpha"), talk.line("beta"), talk.line("gamma")
    one = join_as(talk, "the first is given an id", join(group), 9, first, "first")
    first.send(join(group, one), 9)
    wait_until(lambda: state_of(talk, group) == "PreparingRebalance", "the first is there")
    second.send(join(group), 3)
    talk.hear("the first joins", first)
    two = talk.hear("the second joins, v3", second).member_id
    talk.name(two, "second")
    second.send(sync(group, 1, two), 3)
    talk.waits("the follower's sync", second)
    talk.ask("the leader's heartbeat before its sync", heartbeat(group, 1, one), 4, first)
    talk.ask("the leader joins once more before its sync", join(group, one), 9, first)
    talk.ask("a commit before the sync", offset_commit(group, {}, 1, one), 8, first)
    talk.ask("the leader's sync", sync(group, 1, one, {one: b"one"}), 5, first)
    talk.hear("the follower's sync is answered", second)
    talk.ask("the follower syncs once more, v0", sync(group, 1, two), 0, second)
    talk.ask("sync of another generation", sync(group, 2, one), 5, first)
    talk.ask("sync of another type", sync(group, 1, one, protocol_type="connect"), 5, first)
    talk.ask("sync of another protocol", sync(group, 1, one, protocol_name="sticky"), 5, first)
    talk.ask("sync of an unknown member", sync(group, 1, "nobody"), 5, first)
    talk.ask("heartbeat", heartbeat(group, 1, one), 4, first)
    talk.ask("heartbeat of another generation", heartbeat(group, 2, one), 4, first)
    talk.ask("heartbeat of an unknown member", heartbeat(group, 1, "nobody"), 4, first)
    talk.ask("heartbeat as an unknown static member", heartbeat(group, 1, one, "instance"), 4, first)
    talk.ask("the follower joins once more", join(group, two), 9, second)
    talk.ask("the follower joins once more, v0", join(group, two), 0, second)
    sticky = (("sticky", b""),)
    talk.ask("a third with another type", join(group, protocol_type="connect"), 9, third)
    talk.ask("a third with another protocol", join(group, protocols=sticky), 9, third)
    talk.ask("a member with another protocol", join(group, one, protocols=sticky), 9, third)
    talk.ask("what the group is like", DescribeGroupsRequest(groups=[group]), 5, third)
    second.send(join(group, two, protocols=(("range", subscription("w")),)), 9)
    talk.waits("the follower joins for another topic", second)
    talk.ask("heartbeat in a rebalance", heartbeat(group, 1, one), 4, first)
    talk.ask("sync in a rebalance", sync(group, 1, one), 5, first)
    talk.ask("a commit in a rebalance", offset_commit(group, {}, 1, one), 9, first)
    talk.ask("what the group is like in a rebalance", DescribeGroupsRequest(groups=[group]), 5, third)
    talk.ask("the leader joins again", join(group, one), 9, first)
    talk.hear("the follower has joined again", second)
    second.send(sync(group, 2, two), 5)
    talk.ask("the leader leaves, v2", leave(group, member_id=one), 2, first)
    talk.hear("the follower's sync fails", second)
    generation = talk.ask("the follower joins alone", join(group, two), 9, second).generation_id
    talk.ask("it syncs alone", sync(group, generation, two, {two: b"all"}), 5, second)
    members = ((two, None), ("nobody", None), ("", "nobody"), ("", None))
    talk.ask("members leave, known and unknown", leave(group, *members), 5, second)
    talk.ask("what the empty group is like", DescribeGroupsRequest(groups=[group]), 5, third)


@chapter("static members of classic groups")
def static_members(talk: Conversation) -> None:
    group = talk.fresh("group")
    find_coordinators(talk, GROUP, group)
    first, second, third = talk.line("alpha"), talk.line("beta"), talk.line("gamma")
    first.send(join(group, instance_id="a"), 9)
    wait_until(lambda: state_of(talk, group) == "PreparingRebalance", "a is there")
    second.send(join(group, instance_id="b"), 9)
    one = talk.hear("a joins", first).member_id
    talk.name(one, "a")
    two = talk.hear("b joins", second).member_id
    talk.name(two, "b")
    second.send(sync(group, 1, two, instance_id="b"), 5)
    talk.ask("a syncs", sync(group, 1, one, {one: b"1", two: b"2"}, "a"), 5, first)
    talk.hear("b syncs", second)
    two_again = join_as(talk, "b comes back", join(group, instance_id="b"), 9, third, "b again")
    talk.ask("b syncs again", sync(group, 1, two_again, instance_id="b"), 5, third)
    talk.ask("heartbeat of the b before", heartbeat(group, 1, two, "b"), 4, second)
    talk.ask("sync of the b before", sync(group, 1, two, instance_id="b"), 5, second)
    talk.ask("commit of the b before", offset_commit(group, {}, 1, two, "b"), 9, second)
    talk.ask("the b before joins", join(group, two, "b"), 9, second)
    talk.ask("heartbeat of the b before without its instance", heartbeat(group, 1, two), 4, second)
    for version in (9, 8, 5):
        what = f"a, the leader, comes back, v{version}"
        one = join_as(talk, what, join(group, instance_id="a"), version, first, f"a of v{version}")
    talk.ask("static members leave", leave(group, ("wrong", "a"), ("", "b"), ("", "nobody")), 3, first)
    talk.ask("heartbeat of a after b left", heartbeat(group, 1, one, "a"), 4, first)
    talk.ask("a joins after b left", join(group, one, "a"), 9, first)
    both_ways = (("range", subscription("r")), ("sticky", subscription("s")))
    again = talk.ask("a comes back before its sync", join(group, instance_id="a", protocols=both_ways), 9, third)
    talk.name(again.member_id, "a before its sync")
    assignment = {again.member_id: b"z"}
    talk.ask("it syncs", sync(group, again.generation_id, again.member_id, assignment, "a"), 5, third)
    what = "a comes back and prefers another protocol"
    join_as(talk, what, join(group, instance_id="a", protocols=both_ways[::-1]), 9, third, "a of another protocol")


@chapter("limits of classic groups")
def limits(talk: Conversation) -> None:
    group = talk.fresh("group")
    find_coordinators(talk, GROUP, group)
    lines = [talk.line(f"member-{number}") for number in range(GROUP_SIZE)]
    ids = [
        join_as(talk, f"member {number} of a full group is given an id", join(group), 9, line, f"member {number}")
        for number, line in enumerate(lines)
    ]
    for line, member_id in zip(lines, ids, strict=True):
        line.send(join(group, member_id), 9)
        time.sleep(A_MOMENT_S / 10)
    for number, line in enumerate(lines):
        talk.hear(f"member {number} of a full group", line)
    talk.ask("one more", join(group), 9, lines[-1])
    expiring_members(talk, talk.fresh("expiring"))


def took(started: float, timeout_ms: int) -> bool:
    """As long as the timeout says, and not much longer."""
    return timeout_ms - SLACK_MS < (time.monotonic() - started) * 1000 < timeout_ms + 5 * SLACK_MS


def expiring_members(talk: Conversation, group: str) -> None:
    first, second = talk.line("alpha"), talk.line("beta")
    wanted = join(group, session_timeout_ms=SHORT_SESSION_MS, rebalance_timeout_ms=SHORT_REBALANCE_MS)
    one = join_as(talk, "one with short timeouts", wanted, 3, first, "expiring")
    talk.ask("it syncs with nobody else", sync(group, 1, one, {one: b"1"}), 3, first)
    started = time.monotonic()
    second.send(wanted, 3)
    two = talk.hear("another, after the first did not join again", second).member_id
    talk.name(two, "the other")
    talk.note("whether the rebalance took its time", took(started, SHORT_REBALANCE_MS))
    talk.ask("heartbeat of the one that did not join again", heartbeat(group, 1, one), 4, first)
    started = time.monotonic()
    talk.ask("the other syncs", sync(group, 2, two), 3, second)
    wait_until(lambda: state_of(talk, group) == "Empty", "the session ends")
    talk.note("whether the session lasted its time", took(started, SHORT_SESSION_MS))
