"""Transactional producers: how they begin, what they may add, how they end, and how they are fenced."""

from collections.abc import Mapping, Sequence

from compat.answers.conversation import Conversation, chapter
from compat.answers.requests import create_topic, join, subscription, sync
from compat.answers.writers import (
    FIRST_VERSION_2,
    INIT_VERSIONS,
    NOBODY,
    TIMEOUT_MS,
    Writer,
    described,
    prepare,
)
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
)
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


@chapter("producers that begin")
def beginnings(talk: Conversation) -> None:
    prepare(talk)
    for version in INIT_VERSIONS:
        begin(talk, version)
    writer = Writer(talk, "writer")
    own, epoch = writer.producer_id, writer.epoch

    def init(
        what: str, producer_id: int, producer_epoch: int, transactional_id: str | None = writer.transactional_id
    ) -> None:
        for version in (3, 5):
            request = InitProducerIdRequest(transactional_id, TIMEOUT_MS, producer_id, producer_epoch)
            talk.ask(f"go on {what}, v{version}", request, version)

    init("as another producer", NOBODY, 0)
    init("in an epoch to come", own, epoch + 7)
    init("without an epoch", own, -1)
    init("without a producer", -1, epoch)
    init("with neither a name nor an epoch", 5, -1, None)
    init("without a name", 5, 3, None)
    init("as somebody unknown", NOBODY, 3, talk.fresh("unknown"))
    talk.ask("go on with the own epoch", InitProducerIdRequest(writer.transactional_id, TIMEOUT_MS, own, epoch), 5)
    talk.ask("go on with the epoch before, as after a lost answer",
             InitProducerIdRequest(writer.transactional_id, TIMEOUT_MS, own, epoch), 5)  # fmt: skip
    talk.ask("begin again", InitProducerIdRequest(writer.transactional_id, TIMEOUT_MS), 5)
    talk.ask(
        "go on with an epoch that is fenced", InitProducerIdRequest(writer.transactional_id, TIMEOUT_MS, own, epoch), 5
    )
    talk.ask("what became of it", described(writer.transactional_id), 0)


def begin(talk: Conversation, version: int) -> None:
    name = talk.fresh(f"id of v{version}")
    found = talk.ask_quietly(InitProducerIdRequest(name, TIMEOUT_MS), version, InitProducerIdResponse)
    talk.name_producer(found.producer_id, f"producer of v{version}")
    talk.note(f"begin, v{version}", found)
    plain = talk.ask_quietly(InitProducerIdRequest(None, TIMEOUT_MS), version, InitProducerIdResponse)
    talk.name_producer(plain.producer_id, f"idempotent producer of v{version}")
    talk.note(f"begin without a name, v{version}", plain)
    for timeout in (0, -1, 900_000, 900_001, 2**31 - 1):
        asked = talk.ask(
            f"begin again with a timeout of {timeout}, v{version}", InitProducerIdRequest(name, timeout), version
        )
        assert asked is not None
    talk.ask(f"begin with an empty name, v{version}", InitProducerIdRequest("", TIMEOUT_MS), version)
    talk.ask(f"begin with a timeout of nothing, v{version}", InitProducerIdRequest(talk.fresh("none"), 0), version)
    talk.ask(f"what it became in v{version}", described(name), 0)


@chapter("partitions of transactions")
def partitions(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    for version in range(4):
        writer = Writer(talk, f"writer of v{version}")

        def add(what: str, request: AddPartitionsToTxnRequest) -> None:
            talk.ask(f"add {what}, v{version}", request, version)  # noqa: B023

        add("to nobody's", writer.add((topic, [0]), transactional_id=talk.fresh("unknown"), producer_id=NOBODY))
        add("to one without a name", writer.add((topic, [0]), transactional_id=""))
        add("as another producer", writer.add((topic, [0]), producer_id=NOBODY))
        add("in an epoch to come", writer.add((topic, [0]), epoch=writer.epoch + 1))
        add("in an epoch before", writer.add((topic, [0]), epoch=writer.epoch - 1))
        add("a topic that does not exist", writer.add(("no-such-topic", [0])))
        add("a partition that does not exist", writer.add((topic, [0, 99])))
        add("a topic of the broker's own", writer.add(("__transaction_state", [0])))
        add("nothing", writer.add())
        talk.ask(f"what it is before it has partitions, v{version}", described(writer.transactional_id), 0)
        add("partitions", writer.add((topic, [0, 1])))
        add("them once more", writer.add((topic, [1, 0])))
        talk.ask(f"what it is with partitions, v{version}", described(writer.transactional_id), 0)
        writer.begin(f"writer of v{version}")
        writer.wait_until_ended()
        add("after its successor began", writer.add((topic, [0]), epoch=writer.epoch - 2))
    verifications(talk, topic)


def verifications(talk: Conversation, topic: str) -> None:
    """What leaders ask before the first batch of a transaction (KIP-890)."""
    writer, other = Writer(talk, "verified"), Writer(talk, "other")

    def verify(what: str, *transactions: AddPartitionsToTxnTransaction) -> None:
        for version in (4, 5):
            talk.ask(f"verify {what}, v{version}", AddPartitionsToTxnRequest(transactions=list(transactions)), version)

    verify("one that has not begun", writer.verify((topic, [0])))
    talk.ask("add partition 0", writer.add((topic, [0])), 3)
    verify("what was added", writer.verify((topic, [0])))
    verify("what was not added", writer.verify((topic, [0, 1])))
    verify("as another producer", writer.verify((topic, [0]), producer_id=NOBODY))
    verify("in an epoch to come", writer.verify((topic, [0]), epoch=writer.epoch + 1))
    verify("several", writer.verify((topic, [0])), other.verify((topic, [0])))
    verify("and add what does not exist", other.verify((topic, [0]), ("no-such-topic", [0]), only=False))
    verify("and add", other.verify((topic, [1]), only=False), writer.verify((topic, [2]), only=False))
    talk.ask("what became of the verified", described(writer.transactional_id, other.transactional_id), 0)


@chapter("ends of transactions")
def ends(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    for version in range(6):
        for committed in (True, False):
            end(talk, topic, version, committed=committed)


def end(talk: Conversation, topic: str, version: int, *, committed: bool) -> None:
    verb = "commit" if committed else "abort"
    writer = Writer(talk, f"{verb} of v{version}")

    def ask(what: str, request: EndTxnRequest) -> None:
        talk.ask(f"{verb} {what}, v{version}", request, version)

    nobody = EndTxnRequest(talk.fresh("unknown"), NOBODY, 0, committed)
    ask("nobody's", nobody)
    ask("one without a name", EndTxnRequest("", NOBODY, 0, committed))
    ask("as another producer", writer.end(committed=committed, producer_id=NOBODY))
    ask("one in an epoch to come", writer.end(committed=committed, epoch=writer.epoch + 3))
    ask("one in an epoch before", writer.end(committed=committed, epoch=writer.epoch - 1))
    ask("one that has not begun", writer.end(committed=committed))
    writer.wait_until_ended()
    talk.ask(f"what an empty one is after {verb}, v{version}", described(writer.transactional_id), 0)
    writer.begin(f"{verb} of v{version}")
    talk.ask(f"add before {verb}, v{version}", writer.add((topic, [0])), 3)
    ask("in an epoch to come", writer.end(committed=committed, epoch=writer.epoch + 1))
    ask("what was begun", writer.end(committed=committed))
    writer.wait_until_ended()
    ask("it again", writer.end(committed=committed))
    ask("it the other way", writer.end(committed=not committed))
    ask("it in the epoch that follows", writer.end(committed=committed, epoch=writer.epoch + 1))
    writer.wait_until_ended()
    talk.ask(f"what it is after {verb}, v{version}", described(writer.transactional_id), 0)


@chapter("offsets in transactions")
def offsets(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    group = talk.fresh("group")
    member_id = talk.ask(
        "a member", join(group, instance_id="i", protocols=(("range", subscription(topic)),)), 5
    ).member_id
    talk.name(member_id, "member")
    talk.ask("it syncs", sync(group, 1, member_id, {member_id: b""}, "i"), 5)
    for version in range(5):
        writer = Writer(talk, f"offsets of v{version}")
        plain = talk.fresh(f"plain group of v{version}")

        def add(what: str, request: AddOffsetsToTxnRequest) -> None:
            talk.ask(f"add offsets of {what}, v{version}", request, version)  # noqa: B023

        add("no group", writer.add_offsets(""))
        add("a group as another producer", writer.add_offsets(plain, producer_id=NOBODY))
        add("a group in an epoch to come", writer.add_offsets(plain, epoch=writer.epoch + 1))
        add("a group of nobody's", AddOffsetsToTxnRequest(talk.fresh("unknown"), NOBODY, 0, plain))
        add("a group", writer.add_offsets(plain))
        talk.ask(f"what it is with offsets, v{version}", described(writer.transactional_id), 0)
    for version in range(6):
        commit_offsets(talk, topic, group, member_id, version)


def commit_offsets(talk: Conversation, topic: str, group: str, member_id: str, version: int) -> None:
    writer = Writer(talk, f"writer of v{version}")
    plain = talk.fresh(f"group of v{version}")
    if version < FIRST_VERSION_2["offsets"]:
        talk.ask(f"add offsets before v{version}", writer.add_offsets(plain), 3)

    def commit(what: str, request: TxnOffsetCommitRequest) -> None:
        talk.ask(f"commit in a transaction {what}, v{version}", request, version)

    commit("without a group", writer.commit_offset("", topic))
    commit("as another producer", writer.commit_offset(plain, topic, producer_id=NOBODY))
    commit("in an epoch to come", writer.commit_offset(plain, topic, epoch=writer.epoch + 1))
    commit("of a topic that does not exist", writer.commit_offset(plain, "no-such-topic"))
    commit("of a partition that does not exist", writer.commit_offset(plain, topic, 99))
    commit("with too much metadata", writer.commit_offset(plain, topic, metadata="m" * 4097))
    commit("by hand", writer.commit_offset(plain, topic))
    commit("by hand for a group with members", writer.commit_offset(group, topic))
    if version >= 3:
        commit("in a generation of an unknown group", writer.commit_offset(plain, topic, generation=1, member_id="m"))
        for what, generation, member, instance in (
            ("as a member", 1, member_id, None), ("as a static member", 1, member_id, "i"),
            ("of a generation before", 0, member_id, None), ("of a generation to come", 9, member_id, None),
            ("by an unknown member", 1, "nobody", None), ("by a fenced member", 1, "nobody", "i"),
            ("by an unknown instance", 1, member_id, "j"), ("without a generation", -1, member_id, None),
            ("without a member", 1, "", None),
        ):  # fmt: skip
            request = writer.commit_offset(group, topic, generation=generation, member_id=member, instance_id=instance)
            commit(what, request)
    wanted = OffsetFetchRequestGroup(plain, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    for is_stable in (True, False):
        fetch = OffsetFetchRequest(groups=[wanted], require_stable=is_stable)
        talk.ask(f"fetch {'stable ' if is_stable else ''}offsets while it is open, v{version}", fetch, 9)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(plain, topics=None)], require_stable=True)
    talk.ask(f"fetch all stable offsets while it is open, v{version}", everything, 9)
    talk.ask(f"what it is with committed offsets, v{version}", described(writer.transactional_id), 0)
    talk.ask(f"commit it, v{version}", writer.end(), 5 if version == FIRST_VERSION_2["offsets"] else 4)
    writer.wait_until_ended()
    talk.ask(f"fetch after it was committed, v{version}", OffsetFetchRequest(groups=[wanted], require_stable=True), 9)


@chapter("records of transactions")
def records(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    for version in (3, 8, 11, 12):
        produce(talk, topic, version)
    fencing(talk, topic)


def produce(talk: Conversation, topic: str, version: int) -> None:
    writer = Writer(talk, f"writer of v{version}")
    is_second = version >= FIRST_VERSION_2["produce"]
    partition = version % 3

    def send(what: str, request: ProduceRequest) -> None:
        talk.ask(f"produce {what}, v{version}", request, version)

    send("without a name", writer.produce(topic, partition, transactional_id=None))
    send("under another name", writer.produce(topic, partition, transactional_id=talk.fresh("unknown")))
    send("as another producer", writer.produce(topic, partition, producer_id=NOBODY))
    send("in an epoch to come", writer.produce(topic, partition, epoch=writer.epoch + 1))
    if not is_second:
        send("what was not added", writer.produce(topic, partition))
        talk.ask(f"add, v{version}", writer.add((topic, [partition])), 3)
    send("out of order at the beginning", writer.produce(topic, partition, sequence=5))
    send("first", writer.produce(topic, partition))
    send("the first again", writer.produce(topic, partition))
    writer.wrote()
    send("second", writer.produce(topic, partition))
    send("out of order", writer.produce(topic, partition, sequence=7))
    send(
        "outside of the transaction",
        writer.produce(topic, partition, sequence=2, is_transactional=False, transactional_id=None),
    )
    send("to a partition that does not exist", writer.produce(topic, 99, sequence=2))
    send("to a topic that does not exist", writer.produce("no-such-topic", 0, sequence=2))
    send("to a topic of the broker's own", writer.produce("__consumer_offsets", 0, sequence=2))
    talk.ask(f"what it is with records, v{version}", described(writer.transactional_id), 0)
    talk.ask(f"commit records, v{version}", writer.end(), 5 if is_second else 4)
    writer.wait_until_ended()
    send("after the end", writer.produce(topic, partition, sequence=2))
    send("after the end in the next epoch", writer.produce(topic, partition, epoch=writer.epoch + 1, sequence=0))
    producers = DescribeProducersRequest(topics=[TopicRequest(topic, [partition])])
    talk.ask(f"who writes, v{version}", producers, 0)


def fencing(talk: Conversation, topic: str) -> None:
    writer = Writer(talk, "fenced")
    epoch = writer.epoch
    talk.ask("add for one to be fenced", writer.add((topic, [0])), 3)
    talk.ask("produce as one to be fenced", writer.produce(topic), 11)
    writer.wrote()
    first = InitProducerIdRequest(writer.transactional_id, TIMEOUT_MS)
    talk.ask("another begins under the same name", first, 5)
    writer.wait_until_ended()
    writer.begin("fenced")
    talk.note("how far the epoch went", writer.epoch - epoch)
    for version in (8, 11, 12):
        talk.ask(f"produce as the one before, v{version}", writer.produce(topic, epoch=epoch, sequence=1), version)
    for version in (0, 1, 2, 3):
        talk.ask(f"add as the one before, v{version}", writer.add((topic, [1]), epoch=epoch), version)
        talk.ask(f"add offsets as the one before, v{version}", writer.add_offsets("g", epoch=epoch), version)
        talk.ask(
            f"commit offsets as the one before, v{version}", writer.commit_offset("g", topic, epoch=epoch), version
        )
    for version in range(6):
        talk.ask(f"commit as the one before, v{version}", writer.end(epoch=epoch), version)


@chapter("transactions, described and listed")
def administration(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    idle, open_one = Writer(talk, "idle"), Writer(talk, "open")
    talk.ask("the open one adds", open_one.add((topic, [2, 0])), 3)
    ids = (idle.transactional_id, open_one.transactional_id)
    talk.ask("what they are", described(*ids, talk.fresh("unknown"), "", ids[0]), 0)
    talk.ask("what none are", described(), 0)

    def listed(what: str, request: ListTransactionsRequest, *versions: int) -> None:
        for version in versions:
            found = talk.ask_quietly(request, version, ListTransactionsResponse)
            states = [one for one in found.transaction_states if one.transactional_id in ids]
            found.transaction_states = sorted(states, key=lambda one: one.transactional_id)
            talk.note(f"which there are, {what}, v{version}", found)

    listed("all", ListTransactionsRequest(), 0, 1, 2)
    for states in (["Ongoing"], ["Empty", "Nonsense"], ["ongoing"], ["Nonsense"], ["Dead"]):
        listed(f"in states {states}", ListTransactionsRequest(state_filters=states), 0, 1, 2)
    of_idle = ListTransactionsRequest(producer_id_filters=[idle.producer_id, NOBODY])
    listed("of a producer", of_idle, 0, 2)
    for duration in (0, 3_600_000):
        listed(f"that run for {duration} ms", ListTransactionsRequest(duration_filter=duration), 1, 2)
    for pattern in ("open-.*", "open", "", "["):
        listed(f"like {pattern!r}", ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    producers = DescribeProducersRequest(topics=[TopicRequest(topic, [0, 99]), TopicRequest("no-such-topic", [0])])
    talk.ask("who writes where", producers, 0)


@chapter("markers")
def markers(talk: Conversation) -> None:
    prepare(talk)
    topic, _ = create_topic(talk, "topic")
    writer = Writer(talk, "writer")
    writer.begin("writer")
    now = writer.epoch

    def marker(places: Mapping[str, Sequence[int]], *, epoch: int, coordinator_epoch: int = 0, version: int = 0,
               producer_id: int | None = None) -> WritableTxnMarker:  # fmt: skip
        return WritableTxnMarker(
            producer_id=writer.producer_id if producer_id is None else producer_id,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name, list(of)) for name, of in places.items()],
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )

    def write(what: str, *written: WritableTxnMarker) -> None:
        for version in (1, 2):
            talk.ask(f"markers {what}, v{version}", WriteTxnMarkersRequest(markers=list(written)), version)

    talk.ask("add for markers", writer.add((topic, [0, 1])), 3)
    talk.ask("produce for markers", writer.produce(topic), 11)
    write("of none")
    write("to places that do not exist", marker({topic: [99], "no-such-topic": [0]}, epoch=now))
    write("of an epoch before", marker({topic: [0]}, epoch=now - 1))
    write("of a producer without records", marker({topic: [1]}, epoch=now, producer_id=NOBODY))
    write("of the epoch, in a transaction of version 2", marker({topic: [0]}, epoch=now, version=2))
    write("of the epoch", marker({topic: [0]}, epoch=now, coordinator_epoch=3))
    write("of a coordinator before", marker({topic: [0]}, epoch=now + 1, coordinator_epoch=1))
    write("to a topic of the broker's own", marker({"__consumer_offsets": [0]}, epoch=now))
    two = marker({topic: [1]}, epoch=now + 4), marker({topic: [2]}, epoch=now + 4, producer_id=NOBODY)
    write("of two producers", *two)
