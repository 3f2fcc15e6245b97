"""Offsets of groups: committed, fetched and deleted, by members and by others."""

from collections.abc import Sequence

from compat.answers.conversation import Conversation, chapter
from compat.answers.coordinators import GROUP, find_coordinators
from compat.answers.requests import create_topic, join, leave, offset_commit, subscription, sync
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.offset_commit import OffsetCommitRequestPartition
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.types import Uuid

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
BATCHED_FETCH_VERSION = 8
BY_ID_VERSION = 10
UNKNOWN_ID = bytes(range(16))
MAX_METADATA = 4096


class Topic:
    """A topic that requests may name, or give by its id."""

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id


def commits(
    partition: int, offset: int, metadata: str | None = "", leader_epoch: int = -1
) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, offset, leader_epoch, metadata)


def fetch(group: str, topics: Sequence[tuple[Topic, Sequence[int]]] | None, version: int) -> OffsetFetchRequest:
    """Of one group, in the form of that version."""
    if version < BATCHED_FETCH_VERSION:
        single = None if topics is None else [OffsetFetchRequestTopic(topic.name, list(of)) for topic, of in topics]
        return OffsetFetchRequest(group_id=group, topics=single)
    return OffsetFetchRequest(groups=[wanted(group, topics)])


def wanted(
    group: str,
    topics: Sequence[tuple[Topic, Sequence[int]]] | None,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> OffsetFetchRequestGroup:
    several = (
        None if topics is None else [OffsetFetchRequestTopics(one.name, one.topic_id, list(of)) for one, of in topics]
    )
    return OffsetFetchRequestGroup(group, member_id, member_epoch, several)


def delete(group: str, *places: tuple[str, Sequence[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(each) for each in partitions])
            for topic, partitions in places
        ],
    )


@chapter("offsets that are committed by hand")
def plain_offsets(talk: Conversation) -> None:
    find_coordinators(talk, GROUP, "somebody")
    topic = Topic(*create_topic(talk, "topic"))
    unknown = Topic("no-such-topic", UNKNOWN_ID)
    ids = {topic.name: topic.topic_id, unknown.name: unknown.topic_id}
    for version in COMMIT_VERSIONS:
        commit_by_hand(talk, topic, ids, version)
    group = talk.fresh("group")
    for version in FETCH_VERSIONS:
        fetch_by_hand(talk, group, topic, unknown, version)
    empty, other = talk.fresh("empty"), talk.fresh("other")
    groups = [
        wanted(group, None),
        wanted("nobody", None),
        wanted(group, []),
        wanted("", [(topic, [0])]),
        wanted(other, []),
    ]
    for version in range(BATCHED_FETCH_VERSION, BY_ID_VERSION + 1):
        talk.ask(f"fetch for several groups, v{version}", OffsetFetchRequest(groups=groups), version)
        talk.ask(f"fetch for no group, v{version}", OffsetFetchRequest(), version)
    stranger = [wanted(group, [(topic, [0])], "stranger", 1)]
    for version in (9, 10):
        talk.ask(f"fetch as a stranger, v{version}", OffsetFetchRequest(groups=stranger), version)
    no_member = [wanted(group, [(topic, [0])], "", 1)]
    talk.ask("fetch as nobody in an epoch", OffsetFetchRequest(groups=no_member), 9)
    talk.ask("delete offsets of an unknown group", delete("nobody", (topic.name, [0])), 0)
    talk.ask("delete offsets without a group", delete("", (topic.name, [0])), 0)
    places = ((topic.name, [0, 0, 1, 99]), ("no-such-topic", [0]))
    talk.ask("delete offsets, some unknown", delete(group, *places), 0)
    talk.ask("delete no offsets", delete(group), 0)
    talk.ask("fetch after some were deleted", fetch(group, None, 9), 9)
    talk.ask("commit for a group to be deleted", offset_commit(empty, {(topic.name, 0): 5}), 9)
    talk.ask("delete a group that only has offsets", DeleteGroupsRequest(groups_names=[empty]), 2)
    talk.ask("fetch of the deleted group", fetch(empty, None, 9), 9)


def commit_by_hand(talk: Conversation, topic: Topic, ids: dict[str, Uuid], version: int) -> None:
    group = talk.fresh(f"group of v{version}")

    def commit(what: str, request_group: str, *partitions: OffsetCommitRequestPartition, to: str = topic.name,
               generation: int = -1, member_id: str = "", instance_id: str | None = None) -> None:  # fmt: skip
        places = {(to, number): one for number, one in enumerate(partitions)}
        request = offset_commit(request_group, places, generation, member_id, instance_id, topic_ids=ids)
        talk.ask(f"commit {what}, v{version}", request, version)

    commit("to an unknown group in a generation", group, commits(0, 1), generation=1)
    commit("to an unknown group as a member", group, commits(0, 1), member_id="member")
    commit("to an unknown group as a member of a generation", group, commits(0, 1), generation=0, member_id="member")
    commit("in a generation below all", group, commits(0, 1), generation=-2)
    commit("as an unknown static member", group, commits(0, 1), generation=1, member_id="m",
           instance_id="i" if version >= 7 else None)  # fmt: skip
    commit("without a group", "", commits(0, 1))
    commit("without a group in a generation", "", commits(0, 1), generation=1, member_id="member")
    commit("to a topic that does not exist", group, commits(0, 1), to="no-such-topic")
    commit("to a topic without a name", group, commits(0, 1), to="")
    commit("to no partition", group)
    commit(
        "with known and unknown partitions",
        group,
        commits(0, 7),
        commits(99, 1),
        commits(1, 3, None, 2),
        commits(-1, 1),
    )
    commit("with metadata", group, commits(0, 8, "m" * MAX_METADATA), commits(1, 9, "m" * (MAX_METADATA + 1)))
    commit("of metadata in many bytes", group, commits(2, 9, "ä" * (MAX_METADATA // 2 + 1)))
    commit("of offsets below zero", group, commits(0, -1), commits(1, -2, "x", -2))
    commit("twice to one partition", group, commits(2, 1), commits(2, 2))
    talk.ask(f"fetch what was committed in v{version}", fetch(group, None, 9), 9)


def fetch_by_hand(talk: Conversation, group: str, topic: Topic, unknown: Topic, version: int) -> None:
    places = {(topic.name, 0): commits(0, 7, "seven", 0), (topic.name, 1): commits(1, 8, None)}
    talk.ask(f"commit what is fetched in v{version}", offset_commit(group, places), 9)
    topics = [(topic, [0, 1, 2, 99, 0]), (unknown, [0])]
    talk.ask(f"fetch known and unknown partitions, v{version}", fetch(group, topics, version), version)
    talk.ask(f"fetch nothing, v{version}", fetch(group, [], version), version)
    talk.ask(f"fetch for an unknown group, v{version}", fetch("nobody", [(topic, [0])], version), version)
    talk.ask(f"fetch without a group, v{version}", fetch("", [(topic, [0])], version), version)
    if version > 1:
        talk.ask(f"fetch everything, v{version}", fetch(group, None, version), version)
        talk.ask(f"fetch everything for an unknown group, v{version}", fetch("nobody", None, version), version)


@chapter("offsets of members of classic groups")
def offsets_of_members(talk: Conversation) -> None:
    find_coordinators(talk, GROUP, "somebody")
    topic = Topic(*create_topic(talk, "topic"))
    group = talk.fresh("group")
    protocols = (("range", subscription(topic.name)),)
    member_id = talk.ask("a member joins", join(group, instance_id="static", protocols=protocols), 5).member_id
    talk.name(member_id, "member")
    talk.ask("it syncs", sync(group, 1, member_id, {member_id: b""}, "static"), 5)
    ids = {topic.name: topic.topic_id}
    for version in COMMIT_VERSIONS:

        def commit(what: str, generation: int, member: str, instance_id: str | None = None) -> None:
            request = offset_commit(group, {(topic.name, 0): 3}, generation, member, instance_id, topic_ids=ids)
            talk.ask(f"commit {what}, v{version}", request, version)  # noqa: B023

        commit("as a member", 1, member_id)
        commit("of the generation before", 0, member_id)
        commit("of a generation to come", 2, member_id)
        commit("without a generation as a member", -1, member_id)
        commit("by an unknown member", 1, "nobody")
        commit("by hand to a group with members", -1, "")
        commit("in a generation as nobody", 1, "")
        if version >= 7:
            commit("as a static member", 1, member_id, "static")
            commit("as another static member", 1, member_id, "other")
            commit("as a fenced static member", 1, "nobody", "static")
    for version in (8, 9, 10):
        for what, member, epoch in (
            ("member", member_id, 1),
            ("member of another time", member_id, 0),
            ("stranger", "x", 1),
        ):
            request = OffsetFetchRequest(groups=[wanted(group, [(topic, [0])], member, epoch)])
            talk.ask(f"fetch as a {what} of a classic group, v{version}", request, version)
    talk.ask("delete offsets of a topic that is read", delete(group, (topic.name, [0, 1])), 0)
    talk.ask("delete offsets of a topic that is not read", delete(group, ("no-such-topic", [0])), 0)
    talk.ask("it leaves", leave(group, (member_id, "static")), 5)
    talk.ask("delete offsets after it left", delete(group, (topic.name, [0, 1])), 0)
    stranger = talk.fresh("connect")
    other = talk.ask("a worker joins", join(stranger, protocol_type="connect", protocols=(("x", b"y"),)), 3).member_id
    talk.name(other, "worker")
    talk.ask("it syncs with its group", sync(stranger, 1, other, {other: b""}, protocol_type="connect"), 3)
    talk.ask("commit for a group of workers", offset_commit(stranger, {(topic.name, 0): 3}), 9)
    talk.ask("delete offsets of a group of workers", delete(stranger, (topic.name, [0])), 0)
