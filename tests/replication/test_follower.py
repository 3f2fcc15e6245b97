"""The follower's core by tables, and by random histories of elections."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replication.model_logs import ModelLog, epoch_end, reconcile
from tidelog.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.replication.follower import (
    TRANSITIONS,
    DelayPartition,
    FetchedData,
    FollowerState,
    MarkPartitionFailed,
    PartitionFollower,
    TruncateFullyAndStartAt,
    TruncateTo,
    backoff_ms,
    offset_truncation_state,
)
from tidelog.state_machine import IllegalTransition
from tidelog.storage.disk_errors import ResourceShortage
from tidelog.storage.leader_epochs import EpochEnd
from tidelog.types import NO_LEADER_EPOCH, NO_OFFSET


def fetching(log: ModelLog, leader_epoch: int = 9) -> PartitionFollower:
    """A follower that is through with reconciliation and has asked for records."""
    follower = PartitionFollower(log, leader_epoch)
    follower.ask_epoch()
    follower.on_epoch_end(0, EpochEnd(log.leader_epochs.latest_epoch, log.log_end_offset))
    if follower.state is FollowerState.TRUNCATING:
        follower.on_no_epochs()
    follower.ask_records()
    return follower


# ---- reconciliation (R27)


@pytest.mark.parametrize(
    ("leader", "follower", "kept", "questions"),
    [
        pytest.param([1, 1, 1, 2], [1, 1, 1], 3, 1, id="behind the leader: nothing to cut"),
        pytest.param([1, 1, 3], [1, 1, 1, 1], 2, 1, id="more of an epoch than the leader has of it"),
        pytest.param([1, 1, 1], [1, 1, 1], 3, 1, id="equal"),
        pytest.param([1, 1, 3, 3], [1, 1, 2, 2], 2, 1, id="an epoch that the leader never saw"),
        pytest.param([1, 2, 4], [1, 1, 3, 3], 1, 2, id="epochs that each side lacks of the other (KIP-279)"),
        pytest.param([1, 2, 4, 4, 6], [1, 1, 3, 3, 5, 5], 1, 3, id="a cascade of failovers (KIP-279)"),
        pytest.param([1, 1, 1, 5], [], 0, 0, id="empty"),
    ],
)
def test_a_follower_ends_where_its_log_parts_from_the_leaders(
    leader: list[int], follower: list[int], kept: int, questions: int
) -> None:
    log = ModelLog(*follower, high_watermark=0)
    assert reconcile(PartitionFollower(log, 9), ModelLog(*leader)) == questions
    assert log.log_end_offset == kept


def test_a_restarted_follower_keeps_what_lies_above_its_old_high_watermark() -> None:
    """KIP-101: cutting to the high watermark would lose committed records if it were elected next."""
    log = ModelLog(1, 1, 1, high_watermark=1)
    reconcile(PartitionFollower(log, 2), ModelLog(1, 1, 1))
    assert log.log_end_offset == 3


def test_only_a_log_that_knows_no_epoch_is_cut_to_its_high_watermark() -> None:
    log = ModelLog(high_watermark=1)
    log.records = [NO_LEADER_EPOCH] * 3
    follower = PartitionFollower(log, 2)
    assert follower.ask_epoch() is None
    assert follower.on_no_epochs() == TruncateTo(1)
    assert follower.state is FollowerState.FETCHING


def test_where_the_leader_knows_no_epoch_only_what_is_committed_stays() -> None:
    log = ModelLog(1, 1, 1, high_watermark=2)
    assert offset_truncation_state(EpochEnd(NO_LEADER_EPOCH, NO_OFFSET), log) == (2, True)


def test_a_new_epoch_of_the_same_leader_reconciles_again() -> None:
    """KAFKA-7164: the leader restarted and may have lost its last records."""
    log = ModelLog(1, 1, 1)
    assert PartitionFollower(log, 2).state is FollowerState.TRUNCATING
    leader = ModelLog(1, 1)
    leader.on_controller_failover(2)
    reconcile(PartitionFollower(log, 2), leader)
    assert log.log_end_offset == 2


def test_an_epoch_that_was_led_without_an_append_does_not_make_the_questions_go_round() -> None:
    """KAFKA-10706: the entry of epoch 5 has no records; it must go though the log has nothing to cut."""
    log = ModelLog(1, 1)
    log.on_controller_failover(5)
    leader = ModelLog(1, 1, 6)
    assert reconcile(PartitionFollower(log, 6), leader) == 1
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (2, 1)


def test_a_log_that_begins_after_the_parting_point_starts_over() -> None:
    log = ModelLog(3, 3, log_start_offset=50)
    follower = PartitionFollower(log, 5)
    follower.ask_epoch()
    assert follower.on_epoch_end(0, EpochEnd(2, 40)) == TruncateFullyAndStartAt(40)


def test_an_answer_to_an_earlier_follower_of_the_partition_does_not_count() -> None:
    """KAFKA-18991: it would cut committed records."""
    renewed = PartitionFollower(ModelLog(1, 1, 1), 3)
    assert renewed.on_epoch_end(0, EpochEnd(1, 0)) is None
    assert renewed.on_fetched(0, EpochEnd(1, 0)) is None
    assert renewed.on_range(0, 0, 0) is None
    assert renewed.state is FollowerState.TRUNCATING


# ---- fetching (R26, R28)


def test_records_count_if_they_were_asked_for_from_where_the_log_ends() -> None:
    log = ModelLog(1, 1)
    follower = fetching(log)
    assert follower.on_fetched(0, None) is FetchedData.RECORDS
    log.append(1)
    assert follower.on_fetched(0, None) is FetchedData.WATERMARKS
    assert follower.ask_records() == 3
    assert follower.on_fetched(0, None) is FetchedData.RECORDS


def test_a_divergence_in_a_fetch_response_truncates_and_takes_nothing_else() -> None:
    log = ModelLog(1, 1, 2, 2)
    follower = fetching(log)
    effect = follower.on_fetched(0, EpochEnd(1, 2))
    assert effect == TruncateTo(2)
    log.perform(effect)
    assert follower.state is FollowerState.FETCHING
    assert log.leader_epochs.latest_epoch == 1
    assert follower.on_fetched(0, EpochEnd(1, 0)) is None, "a second answer to the same question"


def test_a_divergence_in_an_unknown_epoch_leads_back_to_the_question() -> None:
    log = ModelLog(1, 1, 3)
    follower = fetching(log)
    assert follower.on_fetched(0, EpochEnd(2, 5)) == TruncateTo(2)
    assert follower.state is FollowerState.TRUNCATING


def test_a_divergence_that_would_change_nothing_does_not_spin() -> None:
    follower = fetching(ModelLog(1, 1))
    assert isinstance(follower.on_fetched(0, EpochEnd(1, 2)), DelayPartition)


@pytest.mark.parametrize(
    "error", [UnknownLeaderEpoch, NotLeaderOrFollower, UnknownTopicId, UnknownTopicOrPartition, KafkaStorageError]
)
def test_an_error_that_may_pass_delays_and_then_goes_on_where_it_was(error: type[KafkaError]) -> None:
    truncating = PartitionFollower(ModelLog(1), 2)
    truncating.ask_epoch()
    effect = truncating.on_epoch_end(error.code, EpochEnd(-1, -1))
    assert isinstance(effect, DelayPartition)
    assert error.__name__ in effect.reason
    assert truncating.resumes_as is FollowerState.TRUNCATING
    truncating.resume()
    assert truncating.state is FollowerState.TRUNCATING
    follower = fetching(ModelLog(1))
    assert isinstance(follower.on_fetched(error.code, None), DelayPartition)
    follower.resume()
    assert follower.state is FollowerState.FETCHING


def test_a_fenced_follower_waits_for_the_controller() -> None:
    follower = fetching(ModelLog(1), leader_epoch=4)
    assert follower.on_fetched(FencedLeaderEpoch.code, None) == MarkPartitionFailed(
        "the leader is in a later epoch than 4", is_failure=False
    )
    assert follower.state is FollowerState.FAILED
    assert follower.on_fetched(0, None) is None


def test_damaged_records_are_fetched_again_and_a_broken_disk_is_final() -> None:
    follower = fetching(ModelLog(1))
    assert isinstance(follower.on_rejected(CorruptMessage("crc")), DelayPartition)
    follower.resume()
    assert follower.on_rejected(KafkaStorageError("no disk")) == MarkPartitionFailed("no disk")


def test_waits_grow_from_short_to_the_setting_and_begin_again_after_a_success() -> None:
    assert [backoff_ms(failures, 1000) for failures in range(10)] == [0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]
    follower = fetching(ModelLog(1))
    for failures in (1, 2):
        follower.on_fetched(NotLeaderOrFollower.code, None)
        assert follower.failures == failures
        follower.resume()
        follower.ask_records()
    follower.on_fetched(0, None)
    assert follower.failures == 2, "the log has not taken it yet"
    follower.on_appended()
    assert follower.failures == 0


def test_a_shortage_delays_a_follower_longer_each_time_and_never_ends_it() -> None:
    follower = fetching(ModelLog(1))
    for failures in (1, 2, 3):
        assert follower.on_fetched(0, None) is FetchedData.RECORDS
        assert follower.on_rejected(ResourceShortage("short")) == DelayPartition("short", is_own_fault=True)
        assert (follower.state, follower.failures) == (FollowerState.DELAYED, failures)
        follower.resume()
        assert follower.state is FollowerState.FETCHING
        follower.ask_records()


def test_a_failed_disk_ends_a_follower() -> None:
    assert isinstance(fetching(ModelLog(1)).on_rejected(KafkaStorageError("offline")), MarkPartitionFailed)


def test_lag_counts_the_committed_records_that_are_missing() -> None:
    follower = fetching(ModelLog(1, 1))
    follower.leader_high_watermark = 5
    assert follower.lag == 3
    follower.leader_high_watermark = 1
    assert follower.lag == 0


# ---- out of range (R29)


def located(log: ModelLog, leader_start: int, leader_end: int) -> object:
    follower = fetching(log)
    assert follower.on_fetched(OffsetOutOfRange.code, None) is None
    assert follower.state is FollowerState.LOCATING
    follower.ask_range()
    return follower.on_range(0, leader_start, leader_end)


def test_a_leader_that_ends_earlier_cuts_the_follower() -> None:
    assert located(ModelLog(1, 1, 1, 1), 0, 2) == TruncateTo(2)


def test_a_leader_that_ends_before_the_follower_starts_makes_it_start_over() -> None:
    assert located(ModelLog(1, 1, log_start_offset=50), 0, 40) == TruncateFullyAndStartAt(40)


def test_a_leader_that_starts_later_makes_the_follower_drop_everything() -> None:
    """KAFKA-9491: log start, high watermark and end move together, which the log sees to."""
    log = ModelLog(1, 1, high_watermark=2)
    effect = located(log, 100, 200)
    assert effect == TruncateFullyAndStartAt(100)
    log.perform(TruncateFullyAndStartAt(100))
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)


def test_a_follower_that_is_in_range_after_all_reconciles_again_after_a_moment() -> None:
    follower = fetching(ModelLog(1, 1))
    follower.on_fetched(OffsetOutOfRange.code, None)
    follower.ask_range()
    assert isinstance(follower.on_range(0, 0, 5), DelayPartition)
    follower.resume()
    assert follower.state is FollowerState.TRUNCATING


def test_a_leader_that_cannot_report_its_range_is_asked_again_later() -> None:
    follower = fetching(ModelLog(1, 1))
    follower.on_fetched(OffsetOutOfRange.code, None)
    follower.ask_range()
    assert isinstance(follower.on_range(NotLeaderOrFollower.code, -1, -1), DelayPartition)
    follower.resume()
    assert follower.state is FollowerState.LOCATING


def test_every_state_has_its_transitions_and_a_failed_follower_has_none() -> None:
    assert set(TRANSITIONS) == set(FollowerState)
    assert not TRANSITIONS[FollowerState.FAILED]


# ---- random histories (I3)


def common_length(one: ModelLog, other: ModelLog) -> int:
    pairs = zip(one.records, other.records, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one.records), len(other.records)))


Step = tuple[int, int, int, int]


@st.composite
def histories(draw: st.DrawFn) -> tuple[ModelLog, ModelLog]:
    """Three logs; in each step one leads in a new epoch, appends, and another follows it for a while.

    Where the follower cuts here is not decided by the code under test but by comparing the records.
    """
    logs = [ModelLog(), ModelLog(), ModelLog()]
    steps: list[Step] = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 2), st.integers(0, 4)),
            min_size=1,
            max_size=12,
        )
    )
    for epoch, (leading, appended, other, copied) in enumerate(steps):
        leader, follower = logs[leading], logs[(leading + other) % 3]
        leader.on_controller_failover(epoch)
        for _ in range(appended):
            leader.append(epoch)
        if copied:
            follower.perform(TruncateTo(common_length(leader, follower)))
            for record in leader.records[follower.log_end_offset :][: copied - 1]:
                follower.append(record)
    leader = logs[draw(st.integers(0, 2))]
    leader.on_controller_failover(len(steps))
    return leader, logs[draw(st.integers(0, 2))]


@given(histories())
def test_whatever_happened_before_the_follower_ends_exactly_where_the_logs_part(
    history: tuple[ModelLog, ModelLog],
) -> None:
    leader, log = history
    common = common_length(leader, log)
    reconcile(PartitionFollower(log, 100), leader)
    assert log.records == leader.records[: log.log_end_offset]
    assert log.log_end_offset == common


@given(histories())
def test_divergence_found_by_fetches_alone_leads_to_the_same_end(history: tuple[ModelLog, ModelLog]) -> None:
    leader, log = history
    common = common_length(leader, log)
    follower = PartitionFollower(log, 100)
    follower.state = FollowerState.FETCHING
    for _ in range(50):
        fetch_offset = follower.ask_records()
        last_epoch = log.leader_epochs.latest_epoch
        diverging = leader.leader_epochs.diverging_epoch(last_epoch, fetch_offset, leader.log_end_offset)
        effect = follower.on_fetched(0, diverging)
        if effect is FetchedData.RECORDS:
            break
        log.perform(effect)
        reconcile(follower, leader)
    assert log.log_end_offset == common


def test_without_the_second_question_a_cascade_of_failovers_would_leave_logs_apart() -> None:
    """That the check above can fail: taking the first answer as the last one is KIP-101 without KIP-279."""
    leader, log = ModelLog(1, 2, 4), ModelLog(1, 1, 3, 3)
    first = offset_truncation_state(epoch_end(leader, log.leader_epochs.latest_epoch), log)
    assert not first.is_final
    assert log.records[: first.offset] != leader.records[: first.offset]


def test_an_illegal_transition_of_a_follower_lists_the_last_ones() -> None:
    follower = fetching(ModelLog(1, 1))
    with pytest.raises(IllegalTransition, match="FETCHING -> FETCHING") as raised:
        follower.on_no_epochs()
    assert "TRUNCATING -> FETCHING" in str(raised.value)
