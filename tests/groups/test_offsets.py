import pytest

from tests.groups.shard_of_groups import DAY_MS, GROUP, MINUTE_MS, TOPIC, Clients, a_shard
from tidelog.errors import (
    NO_ERROR,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidTxnState,
    NonEmptyGroup,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from tidelog.groups.expiry import CONTINUE_AFTER_MS, EXPIRE_OFFSETS, MAX_CHECKED, MAX_TOMBSTONES
from tidelog.groups.group import GroupSettings
from tidelog.groups.transaction_guards import OffsetCommitGuard
from tidelog.replicated.machine import Producer
from tidelog.replicated.memory_shard import WrittenStep

FIRST, SECOND = Producer(1, 0), Producer(2, 0)
UNSTABLE = f"error {UnstableOffsetCommit.code}"
OLD_ID, NEW_ID = bytes(15) + b"\1", bytes(15) + b"\2"
WEEK_MS = 7 * DAY_MS


@pytest.fixture
def clients() -> Clients:
    return Clients(a_shard())


class TestCommitting:
    def test_what_was_committed_is_fetched(self, clients: Clients) -> None:
        assert clients.commit(5) == 0
        assert clients.commit(7, partition=1) == 0
        assert clients.fetch(0, 1, 2) == [5, 7, -1]

    def test_the_later_commit_counts_even_if_it_goes_back(self, clients: Clients) -> None:
        clients.commit(9)
        clients.commit(4)
        assert clients.fetch() == [4]

    def test_somebody_without_membership_makes_a_group_that_has_only_offsets(self, clients: Clients) -> None:
        clients.commit(5)
        assert clients.listed() == {GROUP: ("classic", "", "Empty")}

    def test_the_group_without_a_name_may_have_offsets(self, clients: Clients) -> None:
        assert clients.commit(5, group="") == 0
        assert clients.fetch(group="") == [5]

    @pytest.mark.parametrize(("version", "error"), [(8, IllegalGeneration), (9, GroupIdNotFound)])
    def test_a_member_of_a_group_that_is_not_there_is_refused(
        self, clients: Clients, version: int, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            clients.commit(5, member="m", generation=3, version=version)
        assert clients.listed() == {}
        assert clients.shard.log == []

    def test_metadata_that_is_too_long_is_refused_and_creates_nothing(self, clients: Clients) -> None:
        assert clients.commit(5, metadata="x" * 4097) == OffsetMetadataTooLarge.code
        assert clients.listed() == {}
        assert clients.commit(5, metadata="x" * 4096) == 0

    def test_no_metadata_is_empty_metadata(self, clients: Clients) -> None:
        assert clients.commit(5, metadata=None) == 0
        assert clients.fetch() == [5]

    def test_a_commit_that_cannot_be_written_changes_nothing(self, clients: Clients) -> None:
        clients.shard.rejection = NotEnoughReplicas()
        with pytest.raises(NotEnoughReplicas):
            clients.commit(5)
        assert clients.listed() == {}
        assert clients.fetch() == [-1]

    def test_commits_are_gathered_but_for_the_one_that_makes_the_group(self, clients: Clients) -> None:
        """Whether the group is there decides about the commits of members after it."""
        assert not clients.commit_effects(5).may_be_batched
        assert clients.commit_effects(6).may_be_batched
        assert clients.commit_effects(6, group="others").may_be_batched is False

    def test_a_commit_decides_alike_whether_gathered_ones_before_it_are_replayed_or_not(self, clients: Clients) -> None:
        clients.commit(1)
        asleep = clients.shard.reloaded()
        awake = [clients.commit_effects(offset, partition=offset % 3).records for offset in range(2, 9)]
        others = Clients(asleep)
        asleep.machine.replay = lambda record, producer: None  # type: ignore[method-assign]
        assert [others.commit_effects(offset, partition=offset % 3).records for offset in range(2, 9)] == awake


class TestMembers:
    def test_a_member_commits_in_its_generation(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC)
        assert clients.commit(5, member=member, generation=generation) == 0
        assert clients.fetch() == [5]

    def test_a_stale_generation_is_refused(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC)
        with pytest.raises(IllegalGeneration):
            clients.commit(5, member=member, generation=generation - 1)

    def test_somebody_else_is_refused(self, clients: Clients) -> None:
        _, generation = clients.join(TOPIC)
        with pytest.raises(UnknownMemberId):
            clients.commit(5, member="stranger", generation=generation)

    def test_a_client_that_is_no_member_is_refused_while_there_are_members(self, clients: Clients) -> None:
        member, _ = clients.join(TOPIC)
        with pytest.raises(UnknownMemberId):
            clients.commit(5)
        clients.leave(member)
        assert clients.commit(5) == 0

    def test_a_commit_in_a_transaction_needs_no_membership(self, clients: Clients) -> None:
        clients.join(TOPIC)
        assert clients.commit_in_transaction(FIRST, 5) == 0

    def test_a_fenced_member_cannot_commit_in_a_transaction(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC)
        with pytest.raises(IllegalGeneration):
            clients.commit_in_transaction(FIRST, 5, member=member, generation=generation + 1)
        with pytest.raises(UnknownMemberId):
            clients.commit_in_transaction(FIRST, 5, member="stranger", generation=generation)

    def test_a_generation_of_a_group_that_is_not_there_is_illegal_in_a_transaction(self, clients: Clients) -> None:
        with pytest.raises(IllegalGeneration):
            clients.commit_in_transaction(FIRST, 5, member="m", generation=1)

    def test_nobody_commits_between_join_and_sync(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC, syncs=False)
        with pytest.raises(RebalanceInProgress):
            clients.commit(5, member=member, generation=generation)
        assert clients.commit_in_transaction(FIRST, 5, member=member, generation=generation) == 0


class TestFetching:
    def test_a_group_that_is_not_there_has_no_offsets(self, clients: Clients) -> None:
        assert clients.fetch(0, 1, group="nobody") == [-1, -1]
        assert clients.fetch_all(group="nobody") == {}
        assert clients.listed() == {}

    def test_all_offsets_of_a_group(self, clients: Clients) -> None:
        clients.commit(1)
        clients.commit(2, partition=3)
        clients.commit(3, topic="payments")
        clients.commit(4, group="others")
        assert clients.fetch_all() == {(TOPIC, 0): 1, (TOPIC, 3): 2, ("payments", 0): 3}

    def test_an_offset_of_a_deleted_topic_is_not_that_of_a_new_topic_of_the_same_name(self, clients: Clients) -> None:
        clients.commit(5, topic_id=OLD_ID)
        assert clients.fetch(topic_id=OLD_ID) == [5]
        assert clients.fetch(topic_id=NEW_ID) == [-1]
        assert clients.fetch() == [5]

    def test_an_offset_without_topic_id_belongs_to_any(self, clients: Clients) -> None:
        clients.commit(5)
        assert clients.fetch(topic_id=NEW_ID) == [5]


class TestTransactions:
    def test_offsets_count_once_the_transaction_is_committed(self, clients: Clients) -> None:
        clients.commit(1)
        clients.commit_in_transaction(FIRST, 5)
        assert clients.fetch() == [1]
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert clients.fetch() == [5]

    def test_offsets_of_an_aborted_transaction_never_count(self, clients: Clients) -> None:
        clients.commit_in_transaction(FIRST, 5)
        clients.shard.end_transaction(FIRST, is_committed=False)
        assert clients.fetch() == [-1]

    def test_who_wants_stable_offsets_has_to_wait(self, clients: Clients) -> None:
        clients.commit(1)
        clients.commit(1, partition=1)
        clients.commit_in_transaction(FIRST, 5)
        assert clients.fetch(0, 1, require_stable=True) == [UNSTABLE, 1]
        assert clients.fetch_all(require_stable=True) == {(TOPIC, 0): UNSTABLE, (TOPIC, 1): 1}
        clients.shard.end_transaction(FIRST, is_committed=False)
        assert clients.fetch(0, 1, require_stable=True) == [1, 1]

    @pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
    def test_of_two_transactions_the_one_that_wrote_later_counts(
        self, clients: Clients, order: tuple[Producer, Producer]
    ) -> None:
        clients.commit_in_transaction(FIRST, 10)
        clients.commit_in_transaction(SECOND, 20)
        for producer in order:
            clients.shard.end_transaction(producer, is_committed=True)
        assert clients.fetch() == [20]

    def test_a_plain_commit_after_that_of_a_transaction_counts(self, clients: Clients) -> None:
        clients.commit_in_transaction(FIRST, 10)
        clients.commit(3)
        assert clients.fetch(require_stable=True) == [UNSTABLE]
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert clients.fetch(require_stable=True) == [3]

    def test_a_transaction_may_say_it_again(self, clients: Clients) -> None:
        clients.commit_in_transaction(FIRST, 10)
        clients.commit(3)
        clients.commit_in_transaction(FIRST, 11)
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert clients.fetch() == [11]

    def test_offsets_of_several_groups_end_together(self, clients: Clients) -> None:
        clients.commit_in_transaction(FIRST, 1)
        clients.commit_in_transaction(FIRST, 2, group="others")
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert (clients.fetch(), clients.fetch(group="others")) == ([1], [2])

    def test_a_marker_without_offsets_means_nothing(self, clients: Clients) -> None:
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert clients.listed() == {}

    def test_a_late_commit_must_not_begin_a_transaction_that_has_ended(self, clients: Clients) -> None:
        guard = clients.guard(FIRST)
        clients.shard.end_transaction(FIRST, is_committed=True)
        with pytest.raises(InvalidTxnState):
            clients.commit_in_transaction(FIRST, 5, guard=guard)
        assert clients.fetch(require_stable=True) == [-1]

    def test_the_end_of_another_transaction_is_no_obstacle(self, clients: Clients) -> None:
        guard = clients.guard(FIRST)
        clients.shard.end_transaction(SECOND, is_committed=True)
        assert clients.commit_in_transaction(FIRST, 5, guard=guard) == 0

    def test_a_guard_of_an_earlier_coordinator_does_not_count(self, clients: Clients) -> None:
        with pytest.raises(NotCoordinator):
            clients.commit_in_transaction(FIRST, 5, guard=OffsetCommitGuard(FIRST.producer_id))


class TestDeleting:
    def test_a_deleted_offset_is_gone(self, clients: Clients) -> None:
        clients.commit(5)
        clients.commit(6, partition=1)
        assert clients.delete_offset() == 0
        assert clients.fetch(0, 1) == [-1, 6]

    def test_nothing_is_written_for_an_offset_that_is_not_there(self, clients: Clients) -> None:
        clients.commit(5)
        before = len(clients.shard.log)
        assert clients.delete_offset(partition=7) == 0
        assert len(clients.shard.log) == before

    def test_a_group_that_is_not_there_is_not_found(self, clients: Clients) -> None:
        with pytest.raises(GroupIdNotFound):
            clients.delete_offset()

    def test_offsets_of_a_topic_that_members_read_stay(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC)
        clients.commit(5, member=member, generation=generation)
        clients.commit(6, topic="payments", member=member, generation=generation)
        assert clients.delete_offset() == GroupSubscribedToTopic.code
        assert clients.delete_offset(topic="payments") == 0
        assert clients.fetch_all() == {(TOPIC, 0): 5}

    def test_members_that_do_not_say_what_they_read_keep_all_offsets(self, clients: Clients) -> None:
        clients.commit(5)
        clients.join(TOPIC, protocol_type="connect")
        with pytest.raises(NonEmptyGroup):
            clients.delete_offset()

    def test_what_a_transaction_would_commit_is_deleted_too(self, clients: Clients) -> None:
        clients.commit_in_transaction(FIRST, 5)
        assert clients.delete_offset() == 0
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert clients.fetch(require_stable=True) == [-1]


class TestExpiry:
    def test_offsets_without_members_expire_a_week_after_the_commit(self, clients: Clients) -> None:
        clients.commit(5)
        clients.shard.advance(DAY_MS)
        clients.commit(6, partition=1)
        clients.shard.advance(WEEK_MS - DAY_MS - MINUTE_MS)
        assert clients.fetch(0, 1) == [5, 6]
        clients.shard.advance(11 * MINUTE_MS)
        assert clients.fetch(0, 1) == [-1, 6]
        clients.shard.advance(DAY_MS)
        assert clients.fetch(0, 1) == [-1, -1]
        assert clients.listed() == {}
        assert Clients(clients.shard.reloaded()).listed() == {}

    def test_offsets_of_members_expire_a_week_after_the_last_has_left(self, clients: Clients) -> None:
        member, generation = clients.join(TOPIC)
        clients.commit(5, member=member, generation=generation)
        clients.shard.advance(10 * MINUTE_MS)
        clients.leave(member)
        clients.shard.advance(WEEK_MS - MINUTE_MS)
        assert clients.fetch() == [5]
        clients.shard.advance(11 * MINUTE_MS)
        assert clients.fetch() == [-1]
        assert clients.listed() == {}

    def test_offsets_of_topics_that_members_read_stay(self, clients: Clients) -> None:
        settings = GroupSettings(group_initial_rebalance_delay_ms=0, offsets_retention_minutes=20)
        clients = Clients(a_shard(settings))
        member, generation = clients.join(TOPIC)
        clients.commit(5, member=member, generation=generation)
        clients.commit(6, topic="payments", member=member, generation=generation)
        clients.shard.advance(25 * MINUTE_MS)
        assert clients.fetch_all() == {(TOPIC, 0): 5, ("payments", 0): 6}
        clients.shard.advance(4 * MINUTE_MS)
        clients.commit(7, partition=1, member=member, generation=generation)  # which keeps its session
        clients.shard.advance(2 * MINUTE_MS)
        assert clients.fetch_all() == {(TOPIC, 0): 5, (TOPIC, 1): 7}

    def test_old_consumers_say_how_long_their_offsets_are_to_be_kept(self, clients: Clients) -> None:
        clients.commit(5, retention_ms=30 * MINUTE_MS, version=4)
        clients.commit(6, partition=1)
        clients.shard.advance(25 * MINUTE_MS)
        assert clients.fetch(0, 1) == [5, 6]
        clients.shard.advance(6 * MINUTE_MS)
        assert clients.fetch(0, 1) == [-1, 6]

    def test_a_group_with_a_transaction_stays(self, clients: Clients) -> None:
        clients.commit(5)
        clients.commit_in_transaction(FIRST, 6)
        clients.shard.advance(2 * WEEK_MS)
        assert clients.fetch() == [5]
        clients.shard.end_transaction(FIRST, is_committed=False)
        clients.shard.advance(11 * MINUTE_MS)
        assert clients.listed() == {}

    def test_many_offsets_expire_in_steps(self, clients: Clients) -> None:
        for partition in range(2 * MAX_TOMBSTONES + 10):
            clients.commit(5, partition=partition)
        written = len(clients.shard.log)
        clients.shard.advance(WEEK_MS + 11 * MINUTE_MS)
        steps = [entry for entry in clients.shard.log[written:] if isinstance(entry, WrittenStep)]
        assert [len(step.records) for step in steps] == [MAX_TOMBSTONES, MAX_TOMBSTONES, 11]
        assert clients.listed() == {}

    def test_offsets_that_are_kept_are_looked_at_in_steps(self, clients: Clients) -> None:
        for number in range(MAX_CHECKED):
            clients.commit(5, group=f"group {number}")
        interval_ms = 10 * MINUTE_MS
        steps = 0
        clients.shard.advance(interval_ms)
        while clients.shard.timers[EXPIRE_OFFSETS] < clients.shard.monotonic_ms + interval_ms:
            clients.shard.advance(CONTINUE_AFTER_MS)
            steps += 1
        assert steps == 1
        assert len(clients.listed()) == MAX_CHECKED

    def test_any_time_may_be_asked_for(self, clients: Clients) -> None:
        for partition, retention_ms in enumerate((2**63 - 1, -(2**63), -2)):
            assert clients.commit(5, partition, retention_ms=retention_ms, version=4) == NO_ERROR
        assert clients.fetch(0) == [5]

    def test_what_could_not_be_written_is_tried_again(self, clients: Clients) -> None:
        clients.commit(5)
        clients.shard.rejection = NotEnoughReplicas()
        clients.shard.advance(WEEK_MS + 11 * MINUTE_MS)
        assert clients.fetch() == [5]
        clients.shard.rejection = None
        clients.shard.advance(11 * MINUTE_MS)
        assert clients.listed() == {}


class TestDeletedTopics:
    def forget(self, clients: Clients, **topics: bytes) -> None:
        clients.shard.perform(lambda machine, effects: machine.on_topics_deleted(topics, effects))

    def test_their_offsets_are_forgotten(self, clients: Clients) -> None:
        clients.commit(5, topic_id=OLD_ID)
        clients.commit(6, topic="payments", topic_id=OLD_ID)
        clients.commit(7, group="others")
        self.forget(clients, orders=OLD_ID)
        assert clients.fetch_all() == {("payments", 0): 6}
        assert clients.fetch_all("others") == {}

    def test_offsets_of_a_new_topic_of_the_same_name_stay(self, clients: Clients) -> None:
        clients.commit(5, topic_id=NEW_ID)
        self.forget(clients, orders=OLD_ID)
        assert clients.fetch() == [5]

    def test_what_a_transaction_would_commit_is_forgotten_too(self, clients: Clients) -> None:
        clients.commit_in_transaction(FIRST, 5)
        self.forget(clients, orders=OLD_ID)
        clients.shard.end_transaction(FIRST, is_committed=True)
        assert clients.fetch() == [-1]

    def test_a_step_that_could_not_be_written_is_tried_again(self, clients: Clients) -> None:
        clients.commit(5, topic_id=OLD_ID)
        clients.shard.rejection = NotEnoughReplicas()
        self.forget(clients, orders=OLD_ID)
        clients.shard.rejection = None
        clients.shard.advance(MINUTE_MS)
        assert clients.fetch() == [-1]

    def test_nobody_looks_for_them_for_ever(self, clients: Clients) -> None:
        clients.commit(5, topic_id=OLD_ID)
        self.forget(clients, orders=OLD_ID)
        clients.shard.advance(MINUTE_MS)
        clients.commit(6)
        clients.shard.advance(MINUTE_MS)
        assert clients.fetch() == [6]
