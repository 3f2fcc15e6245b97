"""Producers, a transaction group, time and crashes in any order: what must hold, holds."""

from collections import defaultdict
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.transactions.driving import A0, A1, B0, NEWEST, OLD, TIMEOUT_MS, Coordinator
from tidelog.errors import CoordinatorNotAvailable, KafkaError
from tidelog.protocol.transaction_groups import parse_transactional_id
from tidelog.transactions.states import TransactionState
from tidelog.transactions.transaction import ProducerIdentity, decode_key, decode_transaction
from tidelog.types import TopicPartition

GROUP = "tidelog-group-g"
PRODUCERS = ("p", "q")
PARTITIONS = (A0, A1, B0)
NAMES = ("one", "two", "three")

partition_sets = st.sets(st.sampled_from(PARTITIONS), min_size=1)
producers = st.sampled_from(PRODUCERS)
names = st.sampled_from(NAMES)


class AnyTransactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.identities: dict[str, list[ProducerIdentity]] = defaultdict(list)
        """All that each id was ever given: the last one is the present one, as far as its clients know."""
        self.speaks_old: dict[str, bool] = {}
        self.batch_id = 0
        self.promised_batches: set[int] = set()
        self.winning: set[int] = set()
        """The producer ids of members whose commit was promised."""
        self.epochs: dict[str, list[ProducerIdentity]] = defaultdict(list)
        self.seen_entries = 0
        self.decisions: dict[tuple[str, int, int], TransactionState] = {}

    def _try_init(self, transactional_id: str) -> None:
        try:
            response = self.coordinator.init(transactional_id)
        except KafkaError:
            return
        self.identities[transactional_id].append(ProducerIdentity(response.producer_id, response.producer_epoch))
        if transactional_id == GROUP:
            assert response.group_batch_id >= max(self.promised_batches, default=-1)

    def _any_identity(self, transactional_id: str, age: int) -> ProducerIdentity | None:
        known = self.identities[transactional_id]
        return known[max(0, len(known) - 1 - age)] if known else None

    # ---- producers

    @rule(transactional_id=producers, speaks_old=st.booleans())
    def init(self, transactional_id: str, speaks_old: bool) -> None:
        self.speaks_old[transactional_id] = speaks_old
        self._try_init(transactional_id)

    @rule(transactional_id=producers, partitions=partition_sets, age=st.integers(0, 2))
    def add(self, transactional_id: str, partitions: set[TopicPartition], age: int) -> None:
        identity = self._any_identity(transactional_id, age)
        if identity is not None:
            version = 0 if self.speaks_old[transactional_id] else 2
            self._ignoring_rejections(
                lambda: self.coordinator.add(transactional_id, identity, *partitions, version=version)
            )

    @rule(transactional_id=producers, commit=st.booleans(), age=st.integers(0, 2))
    def end(self, transactional_id: str, commit: bool, age: int) -> None:
        identity = self._any_identity(transactional_id, age)
        if identity is None:
            return
        version = OLD if self.speaks_old[transactional_id] else NEWEST
        try:
            following = self.coordinator.end(transactional_id, identity, commit=commit, version=version)
        except KafkaError:
            return
        if version == NEWEST:
            self.identities[transactional_id].append(following)

    # ---- the group

    @rule()
    def open_group(self) -> None:
        self._try_init(GROUP)

    @rule(name=names, age=st.integers(0, 1), partitions=partition_sets | st.just(set()))
    def write_as_member(self, name: str, age: int, partitions: set[TopicPartition]) -> None:
        driver = self._any_identity(GROUP, age)
        if driver is None:
            return
        member = f"{GROUP}#{driver.producer_id}.{driver.producer_epoch}-{name}"
        self._try_init(member)
        identity = self._any_identity(member, 0)
        if identity is not None and partitions:
            self._ignoring_rejections(lambda: self.coordinator.add(member, identity, *partitions))

    @rule(winners=st.sets(names), age=st.integers(0, 1), commit=st.booleans(), back=st.integers(0, 1))
    def end_group(self, winners: set[str], age: int, commit: bool, back: int) -> None:
        driver = self._any_identity(GROUP, age)
        if driver is None:
            return
        before = self.coordinator.known(GROUP)
        batch_id = max(0, self.batch_id - back)
        ids = [f"{GROUP}#{driver.producer_id}.{driver.producer_epoch}-{name}" for name in winners] if commit else []
        try:
            self.coordinator.end(GROUP, driver, commit=commit, batch_id=batch_id if commit else -1, winners=ids)
        except KafkaError:
            return
        if commit:
            assert before is not None
            if before.state is TransactionState.ONGOING and batch_id > before.batch_id:
                self.winning |= {self.identities[each][-1].producer_id for each in ids}
            self.promised_batches.add(batch_id)
            self.batch_id = max(self.batch_id, batch_id + 1)

    @rule(data=st.data(), wrote=st.dictionaries(names, partition_sets, min_size=1))
    def write_a_batch(self, data: st.DataObject, wrote: dict[str, set[TopicPartition]]) -> None:
        """As a driver and its tasks do it when nothing goes wrong, up to some point."""
        self.open_group()
        for name, partitions in wrote.items():
            self.write_as_member(name, 0, partitions)
        if data.draw(st.booleans()):
            winners = data.draw(st.sets(st.sampled_from(sorted(wrote))))
            self.end_group(winners, 0, commit=True, back=data.draw(st.integers(0, 1)))
            if data.draw(st.booleans()):
                self.the_coordinator_crashes()

    @rule(transactional_id=producers, partitions=partition_sets, commit=st.booleans())
    def write_a_transaction(self, transactional_id: str, partitions: set[TopicPartition], commit: bool) -> None:
        if self.identities[transactional_id]:
            self.add(transactional_id, partitions, 0)
            self.end(transactional_id, commit, 0)

    # ---- surroundings

    @rule(ms=st.sampled_from([1, 1000, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        self.coordinator.shard.advance(ms)

    @rule(ms=st.sampled_from([-10 * TIMEOUT_MS, -1, 10 * TIMEOUT_MS]))
    def the_clock_is_set(self, ms: int) -> None:
        self.coordinator.shard.now_ms += ms

    @rule(data=st.data())
    def a_marker_arrives(self, data: st.DataObject) -> None:
        if self.coordinator.markers.waiting:
            index = data.draw(st.integers(0, len(self.coordinator.markers.waiting) - 1))
            order = self.coordinator.markers.waiting.pop(index)
            split = data.draw(st.integers(0, len(order.partitions)))
            partitions = sorted(order.partitions)
            self.coordinator.arrive(order, frozenset(partitions[:split]))
            if data.draw(st.booleans()) or split == len(partitions):
                self.coordinator.arrive(order, frozenset(partitions[split:]))
            else:
                self.coordinator.markers.waiting.append(order)

    @rule()
    def all_markers_arrive(self) -> None:
        self.coordinator.deliver()

    @rule()
    def the_coordinator_crashes(self) -> None:
        before = dict(self.coordinator.machine.state_manager.by_id)
        self.coordinator.markers.waiting.clear()
        self.coordinator.shard = self.coordinator.shard.reloaded()
        assert self.coordinator.machine.state_manager.by_id == before
        self.coordinator.shard.advance(0)

    @rule()
    def nothing_can_be_written_for_a_while(self) -> None:
        self.coordinator.shard.rejection = CoordinatorNotAvailable()

    @rule()
    def it_can_be_written_again(self) -> None:
        self.coordinator.shard.rejection = None

    # ---- what holds

    @invariant()
    def records_do_not_contradict_each_other(self) -> None:
        log = self.coordinator.shard.log
        for entry in log[self.seen_entries :]:
            for record in entry.records:  # type: ignore[union-attr]
                self._check_record(decode_key(record.key), record.value)
        self.seen_entries = len(log)

    def _check_record(self, transactional_id: str, value: bytes | None) -> None:
        if value is None:
            assert "#" in transactional_id
            return
        transaction = decode_transaction(parse_transactional_id(transactional_id), value)
        earlier = self.epochs[transactional_id]
        if earlier and earlier[-1].producer_id == transaction.producer_id:
            assert transaction.producer_epoch >= earlier[-1].producer_epoch, "an epoch went back"
        else:
            assert all(each.producer_id != transaction.producer_id for each in earlier), "a producer id came back"
        if transaction.state.is_prepared and transaction.has_epoch_per_transaction:
            assert transaction.identity > earlier[-1], "late writes are not shut out"
            decided = self.decisions.setdefault((transactional_id, *transaction.identity), transaction.state)
            assert decided is transaction.state, "one transaction was decided twice"
        earlier.append(transaction.identity)

    @invariant()
    def promised_batches_are_kept(self) -> None:
        group = self.coordinator.known(GROUP)
        if group is not None:
            assert group.batch_id >= max(self.promised_batches, default=-1)

    def teardown(self) -> None:
        """In the end everything ends."""
        self.coordinator.shard.rejection = None
        for _ in range(3):
            self.coordinator.shard.advance(2 * TIMEOUT_MS)
            self.coordinator.deliver()
        self.records_do_not_contradict_each_other()
        for transaction in self.coordinator.machine.state_manager:
            assert transaction.state in (
                TransactionState.EMPTY,
                TransactionState.COMPLETE_COMMIT,
                TransactionState.COMPLETE_ABORT,
            ), transaction
            assert "#" not in transaction.transactional_id
        self._check_members_agree()

    def _check_members_agree(self) -> None:
        """A member is committed in all its partitions if that was promised, and else in none."""
        outcomes: dict[int, set[bool]] = defaultdict(set)
        for (producer_id, _), markers in self.coordinator.markers.written.items():
            outcomes[producer_id].update(is_committed for _, is_committed in markers)
        for transactional_id, identities in self.identities.items():
            if "#" in transactional_id:
                for producer_id, _ in identities:
                    assert outcomes[producer_id] <= {producer_id in self.winning}

    def _ignoring_rejections(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except KafkaError:
            return


AnyTransactions.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestAnyTransactions = AnyTransactions.TestCase
