"""Compaction of topics that coordinators write in transactions: committed offsets, say."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.compacted_log import Stage, append, append_batch, batches_of
from tidelog.config.topic import TopicSettings
from tidelog.protocol.record_batch import read_header
from tidelog.protocol.records import ControlType, Record, build_batch, build_end_marker, records_of
from tidelog.storage.log import Log
from tidelog.storage.validation import AppendOrigin

DAY_MS = 24 * 3600 * 1000
SETTINGS = TopicSettings(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, segment_bytes=600)


def write(log: Log, producer_id: int, key: str, value: str, epoch: int = 0) -> None:
    """As a coordinator does: in a transaction, without sequence."""
    record = Record(0, 5, key.encode(), value.encode())
    batch = build_batch([record], producer_id=producer_id, producer_epoch=epoch, is_transactional=True)
    append_batch(log, batch, AppendOrigin.COORDINATOR)


def end(log: Log, producer_id: int, control_type: ControlType, epoch: int = 0) -> None:
    marker = build_end_marker(
        control_type, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp=5
    )
    append_batch(log, marker, AppendOrigin.COORDINATOR)


def committed(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader of committed records knows in the end."""
    waiting = sorted((each.first_offset, each.producer_id) for each in log.aborted_transactions(0, log.log_end_offset))
    dropping: set[int] = set()
    known: dict[bytes | None, bytes | None] = {}
    for batch in batches_of(log):
        header = read_header(batch)
        if header.base_offset >= log.last_stable_offset:
            break
        while waiting and waiting[0][0] <= header.last_offset:
            dropping.add(waiting.pop(0)[1])
        if header.is_control:
            dropping.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropping):
            known |= {record.key: record.value for record in records_of(batch)}
    return {key: value for key, value in known.items() if value is not None}


class Model:
    """What was committed, and what each producer has written since."""

    def __init__(self) -> None:
        self.committed: dict[bytes | None, bytes | None] = {}
        self.open: dict[int, dict[bytes | None, bytes | None]] = {}
        self.number = 0


operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([1, 2, 3]), st.sampled_from("abcd")),
        st.tuples(st.just("write"), st.sampled_from([1, 2, 3]), st.sampled_from("abcd")),
        st.tuples(st.just("commit"), st.sampled_from([1, 2, 3])),
        st.tuples(st.just("abort"), st.sampled_from([1, 2, 3])),
        st.tuples(st.just("plain"), st.sampled_from("abcd")),
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean")),
        st.tuples(st.just("wait")),
        st.tuples(st.just("restart")),
    ),
    max_size=60,
)


@settings(max_examples=150)
@given(operations)
def test_readers_of_committed_records_always_learn_the_same(steps: list[tuple[Any, ...]]) -> None:
    stage, model = Stage(SETTINGS), Model()
    log = stage.create()
    for step in steps:
        log = take(stage, log, step, model)
        if not model.open:
            assert log.last_stable_offset == log.log_end_offset
            assert committed(log) == model.committed


def take(stage: Stage, log: Log, step: tuple[Any, ...], model: Model) -> Log:
    """One key is written by one at a time, as a coordinator sees to it, or the order of the log would decide."""
    model.number += 1
    value = f"{model.number}"
    match step:
        case ("write", producer_id, key):
            if not any(key.encode() in others for other, others in model.open.items() if other != producer_id):
                write(log, producer_id, key, value)
                model.open.setdefault(producer_id, {})[key.encode()] = value.encode()
        case ("plain", key):
            if not any(key.encode() in others for others in model.open.values()):
                append(log, (key, value))
                model.committed[key.encode()] = value.encode()
        case ("commit", producer_id):
            end(log, producer_id, ControlType.COMMIT)
            model.committed |= model.open.pop(producer_id, {})
        case ("abort", producer_id):
            end(log, producer_id, ControlType.ABORT)
            model.open.pop(producer_id, None)
        case ("roll",):
            log.roll()
        case ("clean",):
            stage.clean()
        case ("wait",):
            stage.clock.advance(DAY_MS // 2)
        case ("restart",):
            return stage.reopen()
    return log


def test_the_transactions_of_one_producer_do_not_pile_up() -> None:
    """Neither their records nor their markers, though the producer lives on in the same epoch."""
    stage = Stage(SETTINGS)
    log = stage.create()
    for number in range(200):
        write(log, 7, "offset", f"{number}")
        end(log, 7, ControlType.ABORT if number % 4 == 1 else ControlType.COMMIT)
    for _ in range(4):
        log.roll()
        stage.clean()
        append(log, ("other", "x"))
        stage.clock.advance(2 * DAY_MS)
    assert committed(log)[b"offset"] == b"199"
    assert log.aborted_transactions(0, log.log_end_offset) == []
    assert len(batches_of(log)) < 20


def test_a_producer_whose_last_transaction_was_cleaned_keeps_its_epoch_over_a_restart() -> None:
    stage = Stage(SETTINGS)
    log = stage.create()
    write(log, 7, "a", "1", epoch=2)
    end(log, 7, ControlType.ABORT, epoch=3)
    for _ in range(3):
        log.roll()
        append(log, ("other", "x"))
        log.roll()
        stage.clean()
        stage.clock.advance(2 * DAY_MS)
    log = stage.reopen()
    assert log.producers.by_id[7].epoch == 3
