"""Consumer groups (KIP-848): what heartbeats are refused for, epochs, static members, and members of both protocols."""

from collections.abc import Mapping, Sequence
from typing import Any

from compat.answers.conversation import Conversation, chapter, wait_until
from compat.answers.coordinators import GROUP, find_coordinators
from compat.answers.offsets import Topic, delete, wanted
from compat.answers.requests import create_topic, heartbeat, join, leave, offset_commit, subscription, sync
from tidelog.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest
from tidelog.types import Uuid

VERSIONS = (0, 1)
JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
UNKNOWN_ID = bytes(range(16))


def beat(
    group: str,
    member_id: str,
    epoch: int,
    *,
    topics: Sequence[str] | None = None,
    owned: Mapping[Uuid, Sequence[int]] | None = None,
    rebalance_timeout_ms: int = -1,
    **others: Any,
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=topics,
        topic_partitions=None if owned is None else [TopicPartitions(each, list(of)) for each, of in owned.items()],
        rebalance_timeout_ms=rebalance_timeout_ms,
        **others,
    )


def joining(
    group: str,
    member_id: str,
    topics: Sequence[str] | None,
    owned: Mapping[Uuid, Sequence[int]] | None = None,
    **others: Any,
) -> ConsumerGroupHeartbeatRequest:
    others = {"rebalance_timeout_ms": 5_000} | others
    return beat(group, member_id, JOINING, topics=topics, owned={} if owned is None else owned, **others)


def prepare(talk: Conversation) -> tuple[str, Uuid]:
    """A topic that coordinators of groups know, which may take longer than until clients do."""
    find_coordinators(talk, GROUP, "somebody")
    topic, topic_id = create_topic(talk, "topic", 4)

    def is_assigned() -> bool:
        found = talk.ask_quietly(joining(talk.fresh("probe"), "m", [topic]), 1, ConsumerGroupHeartbeatResponse)
        talk.first_epoch = found.member_epoch
        return found.assignment is not None and bool(found.assignment.topic_partitions)

    wait_until(is_assigned, "the topic is assigned")
    return topic, topic_id


@chapter("heartbeats that consumer groups refuse")
def rejected_heartbeats(talk: Conversation) -> None:
    topic, topic_id = prepare(talk)
    group = talk.fresh("group")
    some = {topic_id: [0]}
    mistakes = {
        "without a group": joining("", "m", [topic]),
        "of a group of blanks": joining("  ", "m", [topic]),
        "in an epoch below all": beat(group, "m", -3),
        "of an unknown member": beat(group, "m", 1),
        "without a member in an epoch": beat(group, "", 1),
        "of an unknown member that leaves": beat(group, "m", LEAVING),
        "of an unknown member that leaves for a while": beat(group, "m", LEAVING_FOR_A_WHILE, instance_id="i"),
        "that leaves for a while without an instance": beat(group, "m", LEAVING_FOR_A_WHILE),
        "to join without a timeout": joining(group, "m", [topic], rebalance_timeout_ms=-1),
        "to join with a timeout of nothing": joining(talk.fresh("hasty"), "m", [topic], rebalance_timeout_ms=0),
        "to join without topics": joining(group, "m", None),
        "to join without partitions": beat(group, "m", JOINING, topics=[topic], rebalance_timeout_ms=5_000),
        "to join with partitions": joining(group, "m", [topic], some),
        "of a member of blanks": joining(group, " ", [topic]),
        "with an instance of blanks": joining(group, "m", [topic], instance_id=" "),
        "with an empty instance": joining(group, "m", [topic], instance_id=""),
        "with an empty rack": joining(group, "m", [topic], rack_id=""),
        "with an unknown assignor": joining(group, "m", [topic], server_assignor="nonsense"),
        "with an empty assignor": joining(group, "m", [topic], server_assignor=""),
        "with an assignor in capitals": joining(group, "m", [topic], server_assignor="UNIFORM"),
    }
    for version in VERSIONS:
        for what, request in mistakes.items():
            if what != "with an empty assignor" or version:
                talk.ask(f"heartbeat {what}, v{version}", request, version)
    talk.ask("heartbeat to join without an id, v1", joining(group, "", [topic]), 1)
    talk.ask("heartbeat to join with a broken pattern", joining(group, "m", None, subscribed_topic_regex="["), 1)
    talk.ask(
        "heartbeat to join with a broken group in a pattern", joining(group, "m", None, subscribed_topic_regex="(a"), 1
    )
    describe = ConsumerGroupDescribeRequest(group_ids=[group, "nobody", ""])
    for version in VERSIONS:
        talk.ask(f"what groups are like that nobody could join, v{version}", describe, version)
        talk.ask(f"what no groups are like, v{version}", ConsumerGroupDescribeRequest(), version)


@chapter("epochs of consumer groups")
def epochs(talk: Conversation) -> None:
    topic, topic_id = prepare(talk)
    group = talk.fresh("group")
    ids = {topic: topic_id}
    place = Topic(topic, topic_id)
    everything = {topic_id: [0, 1, 2, 3]}
    given = talk.ask("join without an id, v0", joining(group, "", [topic]), 0)
    talk.name(given.member_id, "given id")
    one = given.member_id
    before = given.member_epoch
    talk.ask("read nothing", beat(group, one, before, topics=["no-such-topic"], owned={}), 1)
    talk.ask("read again", beat(group, one, before + 1, topics=[topic]), 1)
    now = before + 2
    talk.ask("the same once more, with its id", joining(group, one, [topic]), 1)
    talk.ask("heartbeat", beat(group, one, now), 1)
    talk.ask("heartbeat with partitions", beat(group, one, now, owned=everything), 1)
    talk.ask("heartbeat of an epoch before", beat(group, one, before), 1)
    talk.ask("heartbeat of an epoch to come", beat(group, one, now + 8), 1)
    talk.ask("heartbeat of an unknown member", beat(group, "nobody", now), 1)
    talk.ask("heartbeat as an unknown static member", beat(group, one, now, instance_id="i"), 1)
    talk.ask(
        "heartbeat with partitions that do not exist", beat(group, one, now, owned={UNKNOWN_ID: [0], topic_id: [99]}), 1
    )
    talk.ask("heartbeat with an unknown assignor in the group", beat(group, one, now, server_assignor="nonsense"), 1)
    for version in (8, 9, 10):
        for what, epoch, member in (
            ("now", now, one),
            ("before", before, one),
            ("to come", now + 8, one),
            ("a stranger", now, "nobody"),
        ):
            request = offset_commit(group, {(topic, 0): 4}, epoch, member, topic_ids=ids)
            talk.ask(f"commit of epoch {what}, v{version}", request, version)
            fetching = OffsetFetchRequest(groups=[wanted(group, [(place, [0])], member, epoch)])
            talk.ask(f"fetch of epoch {what}, v{version}", fetching, version)
        by_hand = offset_commit(group, {(topic, 0): 4}, topic_ids=ids)
        talk.ask(f"commit by hand to a group with members, v{version}", by_hand, version)
    second = talk.ask("a second member joins", joining(group, "second", [topic]), 1)
    talk.ask("the second waits for partitions", beat(group, "second", second.member_epoch), 1)
    talk.ask("the first is to give up some", beat(group, one, now, owned=everything), 1)
    talk.ask("the first still owns them", beat(group, one, now, owned=everything), 1)
    for version in VERSIONS:
        describe = ConsumerGroupDescribeRequest(group_ids=[group])
        talk.ask(f"what the group is like while it reconciles, v{version}", describe, version)
    talk.ask("the first has given some up", beat(group, one, now, owned={topic_id: [0, 1]}), 1)
    talk.ask("the second gets what was given up", beat(group, "second", now + 1), 1)
    talk.ask("the second has it", beat(group, "second", now + 1, owned={topic_id: [2, 3]}), 1)
    talk.ask("a third is one too many", joining(group, "third", [topic]), 1)
    talk.ask("what the group is like", ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    talk.ask("what the group is like to a classic client", DescribeGroupsRequest(groups=[group]), 6)
    talk.ask("delete a group with members", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("delete offsets of a topic that is read", delete(group, (topic, [0])), 0)
    talk.ask("the second reads nothing", beat(group, "second", now + 1, topics=[]), 1)
    talk.ask("the second reads what does not exist", beat(group, "second", now + 2, topics=["no-such-topic"]), 1)
    talk.ask("the second leaves", beat(group, "second", LEAVING), 1)
    talk.ask("the second is gone", beat(group, "second", now + 1), 1)
    talk.ask("the second leaves again", beat(group, "second", LEAVING), 1)
    talk.ask("the first leaves", beat(group, one, LEAVING), 0)
    talk.ask("what the empty group is like", ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    talk.ask("delete offsets of the empty group", delete(group, (topic, [0])), 0)
    talk.ask("delete the empty group", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask("what the deleted group is like", ConsumerGroupDescribeRequest(group_ids=[group]), 1)


@chapter("static members of consumer groups")
def static_members(talk: Conversation) -> None:
    topic, _ = prepare(talk)
    group = talk.fresh("group")
    now = talk.ask("one joins", joining(group, "a", [topic], instance_id="one"), 1).member_epoch
    talk.ask("another joins as the same", joining(group, "b", [topic], instance_id="one"), 1)
    talk.ask("heartbeat of the instance by another member", beat(group, "b", now, instance_id="one"), 1)
    talk.ask("heartbeat of the member as another instance", beat(group, "a", now, instance_id="two"), 1)
    talk.ask("another leaves as the same", beat(group, "b", LEAVING, instance_id="one"), 1)
    talk.ask("it leaves for a while without its instance", beat(group, "a", LEAVING_FOR_A_WHILE), 1)
    talk.ask("it leaves for a while", beat(group, "a", LEAVING_FOR_A_WHILE, instance_id="one"), 1)
    talk.ask("what the group is like while it is away", ConsumerGroupDescribeRequest(group_ids=[group]), 1)
    talk.ask("heartbeat while it is away", beat(group, "a", now, instance_id="one"), 1)
    talk.ask("it comes back with another id", joining(group, "b", [topic], instance_id="one"), 1)
    talk.ask("heartbeat of the member that was replaced", beat(group, "a", now, instance_id="one"), 1)
    talk.ask("commit of the member that was replaced", offset_commit(group, {(topic, 0): 1}, now, "a", "one"), 9)
    talk.ask("commit of the member that replaced it", offset_commit(group, {(topic, 0): 1}, now, "b", "one"), 9)
    talk.ask("it leaves for good", beat(group, "b", LEAVING, instance_id="one"), 1)
    talk.ask("what the group is like without it", ConsumerGroupDescribeRequest(group_ids=[group]), 1)


@chapter("members of both protocols")
def both_protocols(talk: Conversation) -> None:
    topic, _ = prepare(talk)
    protocols = (("range", subscription(topic)),)
    classic, consumer = talk.fresh("classic"), talk.fresh("consumer")
    old = talk.line("old")
    first_epoch, talk.first_epoch = talk.first_epoch, 1
    member = talk.ask("a classic member of a classic group", join(classic, protocols=protocols), 3, old).member_id
    talk.name(member, "old")
    talk.ask("a heartbeat of the new protocol to a rebalancing group", joining(classic, "new", [topic]), 1)
    talk.ask("a classic group seen as a consumer group", ConsumerGroupDescribeRequest(group_ids=[classic]), 1)
    workers = talk.fresh("workers")
    worker = talk.ask("a worker", join(workers, protocol_type="connect", protocols=(("x", b""),)), 3, old).member_id
    talk.name(worker, "worker")
    talk.ask("it syncs", sync(workers, 1, worker, protocol_type="connect"), 3, old)
    talk.ask("a consumer joins a group of workers", joining(workers, "new", [topic]), 1)
    talk.first_epoch = first_epoch
    now = talk.ask("a member of the new protocol", joining(consumer, "new", [topic]), 1).member_epoch
    for version in (3, 9):
        talk.ask(f"a classic heartbeat of its id, v{version}", heartbeat(consumer, now, "new"), min(version, 4))
        talk.ask(f"a classic sync of its id, v{version}", sync(consumer, now, "new"), min(version, 5))
        talk.ask(f"a classic join with its id, v{version}", join(consumer, "new", protocols=protocols), version)
        talk.ask(
            f"a classic join with an unknown id, v{version}", join(consumer, "nobody", protocols=protocols), version
        )
    talk.ask("a classic join of another type", join(consumer, protocol_type="connect"), 9)
    talk.ask("a classic join without a protocol", join(consumer, protocols=()), 9)
    talk.ask("a classic join with a broken subscription", join(consumer, protocols=(("range", b"\0"),)), 3)
    talk.ask("a classic leave of its id", leave(consumer, ("new", None)), 5)
    talk.ask("what is left of the group", ConsumerGroupDescribeRequest(group_ids=[consumer]), 1)
    emptied = talk.fresh("emptied")
    talk.ask("a member of the new protocol comes", joining(emptied, "new", [topic]), 1)
    talk.ask("it goes", beat(emptied, "new", LEAVING), 1)
    talk.first_epoch = 1
    asked = talk.ask("a classic member takes the empty group over", join(emptied, protocols=protocols), 3, old)
    talk.name(asked.member_id, "taker")
    talk.ask("what the group is like to classic clients", DescribeGroupsRequest(groups=[emptied]), 5)
    talk.ask("the taker leaves", leave(emptied, (asked.member_id, None)), 5)
    talk.first_epoch = first_epoch
    talk.ask("a member of the new protocol takes it over", joining(emptied, "newer", [topic]), 1)
