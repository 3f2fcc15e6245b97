import asyncio
import struct

import pytest

from tests.storage.logs import (
    EPOCH,
    NOW_MS,
    ORDERS,
    append,
    batch_of,
    end_transaction,
    loaded,
    manager_on,
    new_log,
)
from tidelog.config.topic import TopicSettings
from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from tidelog.protocol.checksums import crc32c
from tidelog.protocol.record_batch import MAX_SEQUENCE, BatchHeader, read_header
from tidelog.protocol.records import ControlType, EndMarker
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.memory_disk import MemoryDisk
from tidelog.storage.local_log import REMEMBERED_TAIL_BATCHES
from tidelog.storage.log import AppendResult, Log
from tidelog.storage.producer_snapshots import replay_segments
from tidelog.storage.producer_state import CorruptSnapshot, ProducerStateManager
from tidelog.storage.transaction_index import AbortedTransaction
from tidelog.storage.validation import AppendOrigin
from tidelog.storage.verification_guards import VerificationGuard

PRODUCER = 7


def send(
    log: Log, sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PRODUCER, transactional: bool = False
) -> AppendResult:
    batch = batch_of(
        *[b"value"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    return log.append_as_leader(batch, EPOCH)


def test_any_of_the_last_five_batches_is_known_again() -> None:
    log = new_log()
    first = [send(log, number * 2, 2) for number in range(6)]
    for number in range(1, 6):
        again = send(log, number * 2, 2)
        assert again == first[number]._replace(is_duplicate=True, log_append_time_ms=NOW_MS)
    assert log.log_end_offset == 12


def test_a_batch_older_than_the_last_five_is_out_of_order() -> None:
    log = new_log()
    for number in range(6):
        send(log, number)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 0)
    assert log.log_end_offset == 6


def test_a_gap_and_an_overlap_are_refused() -> None:
    log = new_log()
    send(log, 0, 3)
    for sequence in (4, 2, 1):
        with pytest.raises(OutOfOrderSequenceNumber, match="expected 3"):
            send(log, sequence)
    assert send(log, 3).first_offset == 3


def test_sequences_wrap() -> None:
    log = new_log()
    send(log, MAX_SEQUENCE - 1, 3)
    assert log.producers.by_id[PRODUCER].last_sequence == 0
    assert send(log, MAX_SEQUENCE - 1, 3).is_duplicate
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 2)
    assert send(log, 1).first_offset == 3


def test_an_unknown_producer_may_start_anywhere() -> None:
    log = new_log()
    assert send(log, 1234).first_offset == 0
    assert send(log, 1235).first_offset == 1


@pytest.mark.parametrize("epoch", [-2, -(2**15)])
def test_an_epoch_below_that_of_no_producer_is_refused_also_of_an_unknown_producer(epoch: int) -> None:
    log = new_log()
    with pytest.raises(InvalidProducerEpoch):
        send(log, 0, epoch=epoch)
    assert log.log_end_offset == 0
    assert send(log, 0, epoch=-1).first_offset == 0


def test_a_producer_without_an_epoch_may_send_any_sequence() -> None:
    """As in Apache Kafka 4.3.1: there is no epoch in which batches could be missing. Repeated ones are found."""
    log = new_log()
    for offset, sequence in enumerate((9, 3, 7)):
        assert send(log, sequence, epoch=-1).first_offset == offset
    assert send(log, 3, epoch=-1).is_duplicate
    assert send(log, 5, epoch=0).first_offset == 3
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 7, epoch=0)


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    log = new_log()
    send(log, 0)
    with pytest.raises(OutOfOrderSequenceNumber, match="instead of 0"):
        send(log, 1, epoch=1)
    send(log, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 1, epoch=0)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("epoch", [1, 32_766, 32_767])
def test_a_stranger_who_does_not_begin_its_epoch_at_zero_changes_nothing(epoch: int) -> None:
    """What Apache Kafka 4.3.1 checks: a newer epoch is believed if its first sequence is 0, from any client."""
    log = new_log()
    send(log, 0, 2)
    for sequence in (1, 2, 5):
        with pytest.raises(OutOfOrderSequenceNumber, match="instead of 0"):
            send(log, sequence, epoch=epoch)
    assert send(log, 2).first_offset == 2
    assert send(log, 0, 2).is_duplicate


def test_a_stranger_with_the_last_epoch_takes_over_as_any_newer_epoch_does() -> None:
    """As in Kafka 4.3.1: a partition's leader does not know who owns an idempotent producer's id."""
    log = new_log()
    send(log, 0, 2)
    assert send(log, 0, epoch=32_767).first_offset == 2
    with pytest.raises(InvalidProducerEpoch, match="epoch 32767 has taken over"):
        send(log, 2)
    assert send(log, 1, epoch=32_767).first_offset == 3


def test_the_state_survives_a_clean_stop_with_the_last_batch() -> None:
    log = new_log()
    for number in range(3):
        send(log, number)
    asyncio.run(log.close())
    again = loaded(log, is_clean=True, recovery_point=3)
    assert send(again, 2).is_duplicate
    assert send(again, 3).first_offset == 3


def test_the_state_survives_a_crash() -> None:
    log = new_log(settings=TopicSettings(segment_bytes=300))
    for number in range(20):
        send(log, number)
    assert len(log.segments) > 3
    again = loaded(log, recovery_point=11)
    assert again.producers.by_id[PRODUCER].last_sequence == 19
    assert send(again, 19).is_duplicate


@pytest.mark.parametrize("is_clean", [True, False])
def test_any_of_the_last_five_batches_is_known_again_after_a_restart(is_clean: bool) -> None:
    """A producer with five requests in flight repeats all of them. A segment begins in between."""
    log = new_log()
    for number in range(3):
        send(log, number * 2, 2, producer_id=9)
    first = [send(log, number * 2, 2) for number in range(5)]
    log.roll()
    first.append(send(log, 10, 2))
    if is_clean:
        asyncio.run(log.close())
    again = loaded(log, is_clean=is_clean, recovery_point=log.log_end_offset)
    for number in range(1, 6):
        assert send(again, number * 2, 2) == first[number]._replace(is_duplicate=True, log_append_time_ms=NOW_MS)
    assert again.log_end_offset == 18
    with pytest.raises(OutOfOrderSequenceNumber):
        send(again, 0, 2)


def test_a_snapshot_of_apache_kafka_has_the_last_batch_only() -> None:
    log = new_log()
    for number in range(3):
        send(log, number)
    of_kafka = log.producers.snapshot()[10:56]
    body = struct.pack(">i", 1) + of_kafka
    states = ProducerStateManager()
    states.restore(struct.pack(">hI", 1, crc32c(body)) + body, 3)
    assert list(states.by_id[PRODUCER].batches) == list(log.producers.by_id[PRODUCER].batches)[-1:]


def test_a_damaged_snapshot_is_not_needed() -> None:
    disk = MemoryDisk()
    log = new_log(disk, settings=TopicSettings(segment_bytes=300))
    for number in range(20):
        send(log, number)
    asyncio.run(log.close())
    assert len(log.snapshots.offsets) > 3
    for offset in log.snapshots.offsets[1:]:
        disk.open(log.snapshots.path(offset), "append").append(b"x")
    again = loaded(log, is_clean=True, recovery_point=20)
    assert again.producers.by_id[PRODUCER].last_sequence == 19
    assert again.producers.by_id[PRODUCER].last_offset == 19


def test_truncation_takes_the_state_back() -> None:
    log = new_log()
    for number in range(10):
        send(log, number)
        if number == 3:
            log.roll()
    log.truncate_to(7)
    assert log.producers.by_id[PRODUCER].last_sequence == 6
    assert send(log, 7).first_offset == 7
    log.truncate_fully_and_start_at(100)
    assert log.producers.by_id == {}
    assert log.snapshots.offsets == ()


@pytest.mark.parametrize("cut", [1, 5, 100, 600, 999])
@pytest.mark.parametrize("producers", [1, 30])
def test_truncation_gives_the_state_that_reading_the_whole_log_gives(cut: int, producers: int) -> None:
    log = new_log()
    for number in range(1000):
        send(log, number // producers, producer_id=PRODUCER + number % producers)
    log.truncate_to(1000 - cut)
    expected = ProducerStateManager()
    replay_segments(expected, log.segments, log.log_end_offset)
    assert log.producers.snapshot() == expected.snapshot()
    assert {each.producer_id: list(each.batches) for each in log.producers.by_id.values()} == {
        each.producer_id: list(each.batches) for each in expected.by_id.values()
    }
    assert (
        send(log, (1000 - cut) // producers, producer_id=PRODUCER + (1000 - cut) % producers).first_offset == 1000 - cut
    )


def test_cutting_the_end_off_a_log_reads_only_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    for number in range(5000):
        send(log, number)
    replayed: list[int] = []
    update = ProducerStateManager.update

    def counted(states: ProducerStateManager, header: BatchHeader, first_offset: int) -> None:
        replayed.append(first_offset)
        update(states, header, first_offset)

    monkeypatch.setattr(ProducerStateManager, "update", counted)
    log.truncate_to(4990)
    assert 0 < len(replayed) < REMEMBERED_TAIL_BATCHES


def test_snapshots_are_read_back_and_damage_is_noticed() -> None:
    log = new_log()
    send(log, 5, 2)
    send(log, 7, 1)
    send(log, 0, producer_id=9, transactional=True)
    snapshot = log.producers.snapshot()
    assert len(snapshot) == 10 + 2 * 46 + 12 + 32
    states = ProducerStateManager()
    states.restore(snapshot, 4)
    assert states.snapshot() == snapshot
    assert states.by_id[PRODUCER].batches == log.producers.by_id[PRODUCER].batches
    assert states.first_unstable_offset() == 3
    for position in range(len(snapshot)):
        damaged = bytearray(snapshot)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptSnapshot):
            ProducerStateManager().restore(bytes(damaged), 4)
        with pytest.raises(CorruptSnapshot):
            ProducerStateManager().restore(snapshot[:position], 4)


def test_idle_producers_are_forgotten_but_not_in_a_transaction() -> None:
    log = new_log()
    send(log, 0)
    send(log, 0, producer_id=9, transactional=True)
    for elapsed_ms in (500, 1499):
        log.producers.remove_expired(elapsed_ms, expiration_ms=1000)
        assert set(log.producers.by_id) == {PRODUCER, 9}
    log.producers.remove_expired(1500, expiration_ms=1000)
    assert set(log.producers.by_id) == {9}


def test_a_producer_that_goes_on_writing_does_not_expire() -> None:
    log = new_log()
    for number in range(10):
        send(log, number)
        log.producers.remove_expired(number * 1000, expiration_ms=1000)
    assert send(log, 9).is_duplicate


def test_a_producer_of_old_records_is_known_again_when_it_repeats_a_batch() -> None:
    async def run() -> None:
        clock = ManualClock(NOW_MS)
        manager = await manager_on(MemoryDisk(), clock=clock)
        log = manager.create(ORDERS, None, TopicSettings())
        week_ms = 7 * 24 * 60 * 60 * 1000
        for timestamp in (NOW_MS - week_ms, NOW_MS, -1):
            batch = bytes(batch_of(b"v", timestamp=timestamp, producer_id=PRODUCER, producer_epoch=0, base_sequence=0))
            log.append_as_leader(memoryview(bytearray(batch)), EPOCH)
            clock.set_wall_clock(NOW_MS + week_ms)
            for _ in range(3):
                await manager.jobs.expire_producers()
                clock.advance(manager.settings.producer_id_expiration_check_interval_ms)
            assert log.append_as_leader(memoryview(bytearray(batch)), EPOCH).is_duplicate
            log.truncate_fully_and_start_at(log.log_end_offset)

    asyncio.run(run())


# ---- transactions


def test_the_last_stable_offset_stops_at_the_first_open_transaction() -> None:
    log = new_log()
    append(log, b"plain")
    send(log, 0, transactional=True)
    send(log, 0, producer_id=9, transactional=True)
    log.raise_high_watermark(3)
    assert log.last_stable_offset == 1
    end_transaction(log, PRODUCER, ControlType.COMMIT)
    assert log.last_stable_offset == 1  # the marker itself is not committed yet
    log.raise_high_watermark(4)
    assert log.last_stable_offset == 2
    end_transaction(log, 9, ControlType.ABORT)
    log.raise_high_watermark(5)
    assert log.last_stable_offset == 5


def test_the_last_stable_offset_costs_the_same_however_many_transactions_are_open() -> None:
    class Counted(int):
        looked_at = 0

        def __lt__(self, other: int) -> bool:
            Counted.looked_at += 1
            return int(self) < int(other)

    states = ProducerStateManager()
    header = read_header(batch_of(b"value", producer_id=0, base_sequence=0, is_transactional=True))
    for producer_id in range(1000):
        states.update(header._replace(producer_id=producer_id), Counted(producer_id))
    assert states.first_unstable_offset() == 0
    marker = EndMarker(ControlType.ABORT, 0, 0, 0)
    for producer_id in (0, 7, *range(900, 1000), 1):
        aborted = states.end_transaction(header._replace(producer_id=producer_id), marker, Counted(1000 + producer_id))
        assert aborted is not None
        assert aborted.last_stable_offset == (2 if producer_id == 1 else 1)
        assert states.first_unstable_offset() == 0
    states.on_high_watermark(1001)
    assert states.first_unstable_offset() == 1
    assert Counted.looked_at < 1000


def test_transactions_that_are_open_in_a_snapshot_hold_up_readers_in_their_order() -> None:
    log = new_log()
    for producer_id in (3, 1, 2):
        send(log, 0, producer_id=producer_id)
    for producer_id in (2, 3, 1):
        send(log, 1, producer_id=producer_id, transactional=True)
    restored = ProducerStateManager()
    restored.restore(log.producers.snapshot(), 6)
    assert restored.first_unstable_offset() == 3
    header = read_header(batch_of(b"", producer_id=2, base_sequence=0, is_transactional=True))
    restored.end_transaction(header, EndMarker(ControlType.COMMIT, 2, 0, 0), 6)
    restored.on_high_watermark(7)
    assert restored.first_unstable_offset() == 4


def test_aborted_transactions_are_found_for_the_readers_they_concern() -> None:
    log = new_log()
    send(log, 0, transactional=True)
    send(log, 0, producer_id=9, transactional=True)
    end_transaction(log, PRODUCER, ControlType.ABORT)
    log.roll()
    send(log, 1, producer_id=9, transactional=True)
    end_transaction(log, 9, ControlType.ABORT)
    first, second = AbortedTransaction(PRODUCER, 0, 2, 1), AbortedTransaction(9, 1, 4, 5)
    assert log.aborted_transactions(0, 5) == [first, second]
    assert log.aborted_transactions(0, 1) == [first]
    assert log.aborted_transactions(3, 5) == [second]
    again = loaded(log)
    assert again.aborted_transactions(0, 5) == [first, second]
    again.truncate_to(4)
    assert again.aborted_transactions(0, 4) == [first]
    again.raise_high_watermark(4)
    assert again.last_stable_offset == 1


def test_committed_transactions_are_not_in_the_index() -> None:
    log = new_log()
    send(log, 0, transactional=True)
    end_transaction(log, PRODUCER, ControlType.COMMIT)
    assert log.aborted_transactions(0, 2) == []


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    log = new_log()
    send(log, 0, transactional=True)
    with pytest.raises(InvalidTxnState):
        send(log, 1)


def test_a_marker_of_an_older_coordinator_or_producer_is_refused() -> None:
    log = new_log()
    send(log, 0, epoch=3, transactional=True)
    end_transaction(log, PRODUCER, ControlType.COMMIT, producer_epoch=3, coordinator_epoch=5)
    with pytest.raises(TransactionCoordinatorFenced):
        end_transaction(log, PRODUCER, ControlType.COMMIT, producer_epoch=3, coordinator_epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        end_transaction(log, PRODUCER, ControlType.COMMIT, producer_epoch=2, coordinator_epoch=5)
    assert log.log_end_offset == 2


def test_a_marker_with_a_new_epoch_lets_the_next_transaction_begin_at_sequence_zero() -> None:
    """KIP-890: every transaction has an epoch of its own, which the marker of the one before brings."""
    log = new_log()
    send(log, 0, 3, epoch=1, transactional=True)
    end_transaction(log, PRODUCER, ControlType.COMMIT, producer_epoch=2)
    with pytest.raises(InvalidProducerEpoch):
        send(log, 3, epoch=1, transactional=True)
    with pytest.raises(OutOfOrderSequenceNumber):
        send(log, 3, epoch=2, transactional=True)
    assert send(log, 0, epoch=2, transactional=True).first_offset == 4
    assert loaded(log).producers.by_id[PRODUCER].epoch == 2


def test_a_marker_of_the_same_epoch_leaves_sequences_as_they_are() -> None:
    log = new_log()
    send(log, 0, 3, transactional=True)
    end_transaction(log, PRODUCER, ControlType.ABORT)
    assert send(log, 0, 3, transactional=True).is_duplicate
    assert send(log, 3, transactional=True).first_offset == 4


def test_a_marker_of_an_unknown_producer_is_kept_and_makes_its_epoch_known() -> None:
    log = new_log()
    end_transaction(log, PRODUCER, ControlType.ABORT, producer_epoch=4, coordinator_epoch=9)
    state = log.producers.by_id[PRODUCER]
    assert (state.epoch, state.coordinator_epoch, state.transaction_first_offset) == (4, 9, -1)
    assert log.aborted_transactions(0, 1) == []
    log.raise_high_watermark(1)
    assert log.last_stable_offset == 1
    with pytest.raises(InvalidProducerEpoch):
        send(log, 0, epoch=3, transactional=True)


def test_a_repeated_marker_changes_nothing() -> None:
    log = new_log()
    send(log, 0, transactional=True)
    for _ in range(3):
        end_transaction(log, PRODUCER, ControlType.ABORT)
    log.raise_high_watermark(4)
    assert log.last_stable_offset == 4
    assert log.aborted_transactions(0, 4) == [AbortedTransaction(PRODUCER, 0, 1, 2)]


@pytest.mark.parametrize(
    ("marker_epoch", "is_open", "is_allowed"),
    [(6, True, True), (6, False, True), (5, False, True), (5, True, False), (4, False, False), (4, True, False)],
)
def test_under_transactions_version_two_a_marker_raises_the_epoch_or_is_a_repetition(
    marker_epoch: int, is_open: bool, is_allowed: bool
) -> None:
    log = new_log()
    send(log, 0, epoch=5, transactional=is_open)
    if is_allowed:
        log.producers.check_newer_epoch(PRODUCER, marker_epoch)
    else:
        with pytest.raises(InvalidProducerEpoch):
            log.producers.check_newer_epoch(PRODUCER, marker_epoch)


def test_the_last_epoch_of_a_producer_is_ended_with_itself() -> None:
    log = new_log()
    send(log, 0, epoch=2**15 - 1, transactional=True)
    log.producers.check_newer_epoch(PRODUCER, 2**15 - 1)
    log.producers.check_newer_epoch(PRODUCER + 1, 0)  # nobody knows it here


def test_batches_without_sequence_are_remembered_for_compaction_and_snapshots() -> None:
    """A coordinator writes them: committed offsets in a transaction."""
    log = new_log()
    batch = batch_of(b"a", b"b", producer_id=PRODUCER, producer_epoch=0, is_transactional=True)
    log.append_as_leader(batch, EPOCH, AppendOrigin.COORDINATOR)
    state = log.producers.by_id[PRODUCER]
    assert (state.last_offset, state.last_sequence, state.next_sequence) == (1, -1, 0)
    restored = ProducerStateManager()
    restored.restore(log.producers.snapshot(), 2)
    assert restored.by_id[PRODUCER].batches == state.batches
    assert restored.snapshot() == log.producers.snapshot()


def test_the_transaction_index_survives_restart_and_truncation_in_every_segment() -> None:
    log = new_log(settings=TopicSettings(segment_bytes=400))
    for number in range(12):
        send(log, number, transactional=True)
        end_transaction(log, PRODUCER, ControlType.ABORT if number % 3 else ControlType.COMMIT)
    assert len(log.segments) > 4
    expected = [AbortedTransaction(PRODUCER, n * 2, n * 2 + 1, n * 2 + 2) for n in range(12) if n % 3]
    assert log.aborted_transactions(0, 24) == expected
    assert loaded(log, recovery_point=0).aborted_transactions(0, 24) == expected
    again = loaded(log, recovery_point=24)
    for end in range(24, -1, -1):
        again.truncate_to(end)
        assert again.aborted_transactions(0, end) == [entry for entry in expected if entry.last_offset < end]
        again.raise_high_watermark(end)
        open_from = end - 1 if end % 2 else end
        assert again.last_stable_offset == open_from


def test_the_last_stable_offset_is_never_below_the_log_start() -> None:
    log = new_log()
    for number in range(4):
        send(log, number, transactional=True)
    log.raise_high_watermark(4)
    log.advance_log_start_offset(2)
    assert log.last_stable_offset == 2


# ---- the guard between the coordinator's word and the first batch


def header(sequence: int, *, epoch: int = 0, producer_id: int = PRODUCER) -> BatchHeader:
    batch = batch_of(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    return read_header(batch)


def verification_of(log: Log, sequence: int, *, epoch: int = 0, starts_at_zero: bool = False) -> VerificationGuard:
    found = log.producers.begin_verification(header(sequence, epoch=epoch), NOW_MS, starts_at_zero=starts_at_zero)
    assert found is not None
    return found


def test_a_transaction_that_is_open_here_needs_no_verification() -> None:
    log = new_log()
    send(log, 0, transactional=True)
    assert log.producers.begin_verification(header(1), NOW_MS, starts_at_zero=False) is None
    assert verification_of(log, 0, epoch=1) is not None
    end_transaction(log, PRODUCER, ControlType.COMMIT)
    assert verification_of(log, 1) is not None


def test_a_verified_batch_is_appended_and_uses_the_guard_up() -> None:
    log = new_log()
    guard = verification_of(log, 0)
    log.producers.check_verified(header(0), guard)
    send(log, 0, transactional=True)
    assert len(log.producers.verifications) == 0
    log.producers.check_verified(header(1), guard)  # the transaction goes on


def test_a_marker_between_verification_and_append_takes_the_guard_away() -> None:
    log = new_log()
    guard = verification_of(log, 0)
    end_transaction(log, PRODUCER, ControlType.ABORT)
    with pytest.raises(InvalidTxnState):
        log.producers.check_verified(header(0), guard)
    later = verification_of(log, 0)
    with pytest.raises(InvalidTxnState):
        log.producers.check_verified(header(0), guard)
    log.producers.check_verified(header(0), later)


def test_a_marker_of_a_later_epoch_between_verification_and_append_fences() -> None:
    log = new_log()
    guard = verification_of(log, 0)
    end_transaction(log, PRODUCER, ControlType.ABORT, producer_epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        log.producers.check_verified(header(0), guard)
    with pytest.raises(InvalidProducerEpoch):
        verification_of(log, 0)


def test_a_later_batch_does_not_overtake_the_first_one_of_its_transaction() -> None:
    log = new_log()
    guard = verification_of(log, 5)
    assert verification_of(log, 3) is guard
    with pytest.raises(OutOfOrderSequenceNumber):
        log.producers.check_verified(header(5), guard)
    log.producers.check_verified(header(3), guard)


def test_a_transaction_with_an_epoch_of_its_own_begins_with_sequence_zero() -> None:
    log = new_log()
    guard = verification_of(log, 1, starts_at_zero=True)
    with pytest.raises(OutOfOrderSequenceNumber, match="expected 0"):
        log.producers.check_verified(header(1), guard)


def test_the_marker_of_the_transaction_before_leaves_the_guard_of_the_next_one() -> None:
    """A producer begins its next transaction while markers of the last one are still on their way."""
    log = new_log()
    send(log, 0, epoch=1, transactional=True)
    guard = verification_of(log, 0, epoch=2, starts_at_zero=True)
    end_transaction(log, PRODUCER, ControlType.COMMIT, producer_epoch=2)
    log.producers.check_verified(header(0, epoch=2), guard)
    end_transaction(log, PRODUCER, ControlType.ABORT, producer_epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        log.producers.check_verified(header(0, epoch=2), guard)


def test_at_the_last_epoch_a_marker_may_be_of_the_guarded_transaction_itself() -> None:
    log = new_log()
    last = 2**15 - 1
    guard = verification_of(log, 0, epoch=last, starts_at_zero=True)
    end_transaction(log, PRODUCER, ControlType.ABORT, producer_epoch=last)
    with pytest.raises(InvalidTxnState):
        log.producers.check_verified(header(0, epoch=last), guard)


def test_guards_that_nobody_used_are_forgotten_in_time() -> None:
    log = new_log()
    verification_of(log, 0)
    log.producers.verifications.remove_older_than(NOW_MS - 1)
    assert len(log.producers.verifications) == 1
    log.producers.verifications.remove_older_than(NOW_MS)
    assert len(log.producers.verifications) == 0
