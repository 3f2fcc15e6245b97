"""Numbers at their limits, odd names, and what is named twice or not at all: of groups and of transactions."""

from collections.abc import Sequence
from typing import Any

from compat.answers.consumer_groups import beat, joining
from compat.answers.consumer_groups import prepare as prepare_groups
from compat.answers.conversation import Conversation, chapter
from compat.answers.coordinators import GROUP, find_coordinators
from compat.answers.offsets import COMMIT_VERSIONS, FETCH_VERSIONS, UNKNOWN_ID, Topic, commits, delete, fetch
from compat.answers.requests import create_topic, heartbeat, join, leave, offset_commit, subscription, sync
from compat.answers.writers import INIT_VERSIONS, TIMEOUT_MS, Writer, described, prepare
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from tidelog.protocol.messages.sync_group import SyncGroupRequestAssignment
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
ODD_NAMES = ("a b", "ü/ö", "a\0b", "..", "%", "a:b", "\n", "x" * 300, "x" * 32_000)


def shown(name: str) -> str:
    return f"{name[:8]!r} of {len(name)}"


@chapter("classic groups with odd names and numbers")
def classic_groups(talk: Conversation) -> None:
    find_coordinators(talk, GROUP, "somebody")
    topic, _ = create_topic(talk, "topic")

    def joined(what: str, group: str, version: int = 5, **others: Any) -> str:
        found = talk.ask(what, join(group, **{"instance_id": "i"} | others), version)
        talk.name(found.member_id, what)
        member_id: str = found.member_id
        return member_id

    for name in ODD_NAMES:
        group = talk.fresh("group") + name
        member = joined(f"join group {shown(name)}", group)
        talk.ask(f"sync group {shown(name)}", sync(group, 1, member, {member: b"x"}, "i"), 5)
        talk.ask(f"commit to group {shown(name)}", offset_commit(group, {(topic, 0): 1}, 1, member, "i"), 9)
        talk.ask(f"what group {shown(name)} is like", DescribeGroupsRequest(groups=[group]), 5)
        talk.ask(f"leave group {shown(name)}", leave(group, (member, "i"), (member, "i")), 5)
        talk.ask(f"delete group {shown(name)}", DeleteGroupsRequest(groups_names=[group, group]), 2)
        joined(f"join as instance {shown(name)}", talk.fresh("group"), instance_id=name)
    for timeout in (0, -1, 1, *INT32):
        joined(f"join with {timeout} ms to rebalance", talk.fresh("group"), 9, rebalance_timeout_ms=timeout)
    for version in (6, 7, 9):
        joined(f"join with a protocol without a name, v{version}", talk.fresh("group"), version, protocols=(("", b""),))
    group = talk.fresh("group")
    member = joined("join as i", group)
    for generation in (-1, 0, 2, *INT32):
        talk.ask(f"sync of generation {generation}", sync(group, generation, member, {member: b"x"}, "i"), 5)
        talk.ask(f"heartbeat of generation {generation}", heartbeat(group, generation, member, "i"), 4)
    talk.ask("sync with a type and no name", sync(group, 1, member, {}, "i", protocol_name=None), 5)
    talk.ask("sync with a name and no type", sync(group, 1, member, {}, "i", protocol_type=None), 5)
    twice = sync(group, 1, member, {member: b"one", "nobody": b"two"}, "i")
    twice.assignments.append(SyncGroupRequestAssignment(member, b"three"))
    talk.ask("sync with two assignments for one", twice, 5)
    talk.ask("nobody leaves", leave(group), 5)
    others = ((member, "j"), ("", ""), (member, ""), ("x", "i"), ("", "i"), ("", "i"))
    talk.ask("leave as others and as itself, twice", leave(group, *others), 5)


@chapter("offsets at the limits, and partitions named twice")
def offsets(talk: Conversation) -> None:
    find_coordinators(talk, GROUP, "somebody")
    topic, other = Topic(*create_topic(talk, "topic")), Topic(*create_topic(talk, "other"))
    group = talk.fresh("group")

    def topics(*named: OffsetCommitRequestTopic) -> OffsetCommitRequest:
        return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=list(named))

    for version in COMMIT_VERSIONS:
        extremes = [commits(0, INT64[1], "", INT32[1]), commits(1, INT64[0], "", INT32[0]), commits(INT32[1], 1)]
        requests = {
            "twice to a topic": topics(
                OffsetCommitRequestTopic(topic.name, topic.topic_id, [commits(0, 1)]),
                OffsetCommitRequestTopic(topic.name, topic.topic_id, [commits(0, 2), commits(1, 3), commits(9, 9)]),
            ),
            "twice to what is unknown": topics(
                *(OffsetCommitRequestTopic("unknown", UNKNOWN_ID, [commits(index, 1)]) for index in (0, 1))
            ),
            "to nothing of a topic": topics(OffsetCommitRequestTopic(topic.name, topic.topic_id)),
            "at the limits": topics(OffsetCommitRequestTopic(topic.name, topic.topic_id, extremes)),
            "with the name and the id of two": topics(
                OffsetCommitRequestTopic(topic.name, other.topic_id, [commits(2, 5)])
            ),
        }
        for what, request in requests.items():
            talk.ask(f"commit {what}, v{version}", request, version)
        talk.ask(f"what is committed in v{version}", fetch(group, None, 9), 9)
    for version in FETCH_VERSIONS:
        wanted = [(topic, [0, *INT32]), (topic, [0, 1]), (other, [])]
        talk.ask(f"fetch twice from a topic, v{version}", fetch(group, wanted, version), version)
    places: list[tuple[str, list[int]]] = [(topic.name, [0, *INT32]), (topic.name, [0, 1]), ("", [0]), (other.name, [])]
    talk.ask("delete twice from a topic, and what is not there", delete(group, *places), 0)
    talk.ask("commit again", offset_commit(group, {(topic.name, 0): 1, (topic.name, 1): 1}), 9)
    talk.ask("delete twice from a topic", delete(group, (topic.name, [0]), (topic.name, [0, 1])), 0)


@chapter("consumer groups with odd names and numbers")
def consumer_groups(talk: Conversation) -> None:
    topic, _ = prepare_groups(talk)
    for name in ("\0", "\t", *ODD_NAMES):
        group = talk.fresh("group")
        talk.ask(f"join as member {shown(name)}", joining(group, name, [topic]), 1)
        talk.ask(f"leave as member {shown(name)}", beat(group, name, -1), 1)
        talk.ask(f"join as instance {shown(name)}", joining(talk.fresh("group"), "m", [topic], instance_id=name), 1)
    for timeout in (1, -2, *INT32):
        request = joining(talk.fresh("group"), "m", [topic], rebalance_timeout_ms=timeout)
        talk.ask(f"join with {timeout} ms to rebalance", request, 1)
    for epoch in INT32:
        talk.ask(f"heartbeat of epoch {epoch}", beat(talk.fresh("group"), "m", epoch, topics=[topic]), 1)
    group = talk.fresh("group")
    talk.ask("join for a topic, twice, and for none", joining(group, "m", [topic, topic, "", "a b"]), 1)
    for version in (4, 6, 7, 9):
        classic = join(group, protocols=(("range", subscription(topic)),))
        found = talk.ask(f"a classic member asks for an id, v{version}", classic, version)
        talk.name(found.member_id, f"id of v{version}")


@chapter("transactions with odd names and numbers")
def transactions(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    beginnings(talk)
    partitions(talk, topic)
    partitions_of_brokers(talk, topic)
    writer = Writer(talk, "writer")
    for version in range(6):
        for producer_id, epoch in ((-1, -1), (-1, 0), (writer.producer_id, -1), (writer.producer_id, 32_767)):
            who = "it" if producer_id >= 0 else producer_id
            request = EndTxnRequest(writer.transactional_id, producer_id, epoch, True)
            talk.ask(f"end as {who} in epoch {epoch}, v{version}", request, version)
        offsets_in_transaction(talk, topic, version)


def beginnings(talk: Conversation) -> None:
    for version in INIT_VERSIONS:
        for name in ODD_NAMES:
            found = talk.ask_quietly(
                InitProducerIdRequest(talk.fresh("id") + name, TIMEOUT_MS), version, InitProducerIdResponse
            )
            talk.name_producer(found.producer_id, f"{shown(name)}, v{version}")
            talk.note(f"begin as {shown(name)}, v{version}", found)
    for version in range(3, 6):
        for producer_id, epoch in ((-5, -5), (-5, 0), (5, -5), (5, 32_767)):
            request = InitProducerIdRequest(talk.fresh("id"), TIMEOUT_MS, producer_id, epoch)
            talk.ask(f"go on as {producer_id} in epoch {epoch}, v{version}", request, version)


def partitions(talk: Conversation, topic: str) -> None:
    for version in range(4):
        writer = Writer(talk, f"writer of v{version}")
        for what, added in {
            "a partition twice": writer.add((topic, [0, 0])),
            "a topic twice": writer.add((topic, [0]), (topic, [1, 0])),
            "partitions below zero": writer.add((topic, [2, *INT32])),
            "nothing of a topic": writer.add((topic, [])),
            "topics that cannot be": writer.add(("", [0]), ("a b", [0])),
            "in an epoch below zero": writer.add((topic, [2]), epoch=-1),
            "in the last of all epochs": writer.add((topic, [2]), epoch=32_767),
        }.items():
            talk.ask(f"add {what}, v{version}", added, version)
        talk.ask(f"what it has in v{version}", described(writer.transactional_id), 0)


def partitions_of_brokers(talk: Conversation, topic: str) -> None:
    one, other = Writer(talk, "one"), Writer(talk, "other")
    for version in (4, 5):
        for what, asked in {
            "nothing": [one.verify(only=False), other.verify()],
            "nothing of a topic": [one.verify((topic, []), only=False)],
            "a partition below zero": [one.verify((topic, [-1]), only=False), other.verify((topic, [-1]))],
            "offsets of groups": [one.verify(("__consumer_offsets", [0]), only=False)],
            "in an epoch before": [other.verify((topic, [0]), epoch=other.epoch - 1)],
        }.items():
            request = AddPartitionsToTxnRequest(transactions=asked)
            talk.ask(f"brokers add {what}, v{version}", request, version)
    talk.ask("what they have", described(one.transactional_id, other.transactional_id), 0)


def offsets_in_transaction(talk: Conversation, topic: str, version: int) -> None:
    writer, group = Writer(talk, f"writer with offsets, v{version}"), talk.fresh(f"group of v{version}")
    talk.ask(f"add a group, v{version}", writer.add_offsets(group), 3)

    def commit(what: str, *topics: tuple[str, Sequence[tuple[int, int, str | None]]], **others: Any) -> None:
        named = [
            TxnOffsetCommitRequestTopic(
                name, [TxnOffsetCommitRequestPartition(index, offset, -1, note) for index, offset, note in places]
            )
            for name, places in topics
        ]
        fields: dict[str, Any] = {
            "transactional_id": writer.transactional_id,
            "group_id": group,
            "producer_id": writer.producer_id,
            "producer_epoch": writer.epoch,
            "topics": named,
        }
        talk.ask(f"commit in a transaction {what}, v{version}", TxnOffsetCommitRequest(**fields | others), version)

    place = (topic, [(0, 5, "")])
    commit("as one without a name", place, transactional_id="")
    commit("as one of another name", place, transactional_id=talk.fresh("unknown"))
    commit("to nothing")
    commit("to nothing of a topic", (topic, []))
    commit(
        "to some that do not exist", (topic, [(0, 5, ""), (99, 5, ""), (-1, 1, ""), (1, -1, None)]), ("x", [(0, 1, "")])
    )
    commit("twice to a partition", (topic, [(2, 5, "a"), (2, 6, "b")]), (topic, [(2, 7, "c")]))
    commit("at the limits", (topic, [(0, INT64[1], "m" * 4096), (1, INT64[0], "m" * 4097)]))
    commit("without a producer", place, producer_id=-1, producer_epoch=-1)
    commit("in an epoch below zero", place, producer_epoch=-1)
    talk.ask(f"commit by hand meanwhile, v{version}", offset_commit(group, {(topic, 0): 77}), 9)
    talk.ask(f"delete an offset meanwhile, v{version}", delete(group, (topic, [0])), 0)
    talk.ask(f"delete the group meanwhile, v{version}", DeleteGroupsRequest(groups_names=[group]), 2)
    talk.ask(f"end with offsets, v{version}", writer.end(committed=bool(version % 2)), 5 if version == 5 else 4)
    writer.wait_until_ended()
    talk.ask(f"what is committed in the end, v{version}", fetch(group, None, 9), 9)
