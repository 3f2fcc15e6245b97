"""Output of the benchmark's programs and of the operating system, as the benchmark parses it."""

import os
import struct

import pytest

from bench import processes, rdkafka, wire
from bench.load import Answers
from bench.wire import PartitionState

PRODUCED = (
    "% Sending 300000 messages of size 1024 bytes\n"
    "% 300000 messages produced (307200000 bytes), 299990 delivered (offset 1, 0 failed) in 990ms: 1 msgs/s and 1 MB/s"
    ", 0 produce failures, 10 in queue, no compression\n"
    "% 300000 messages produced (307200000 bytes), 300000 delivered (offset 75021, 0 failed) in 1000ms: 300000 msgs/s "
    "and 307.20 MB/s, 0 produce failures, 0 in queue, no compression\n"
)


def test_the_last_summary_of_the_producer_counts() -> None:
    assert rdkafka.parse_produced(PRODUCED, 300_000) == rdkafka.Transfer(300_000, 307_200_000, 1.0)


def test_a_record_that_was_not_delivered_fails_the_run() -> None:
    with pytest.raises(rdkafka.ClientFailed, match="300000 of 300001"):
        rdkafka.parse_produced(PRODUCED, 300_001)


def test_a_program_without_a_summary_failed() -> None:
    with pytest.raises(rdkafka.ClientFailed, match="cannot connect"):
        rdkafka.parse_consumed("cannot connect", 1)


def test_the_consumer_must_have_read_everything() -> None:
    output = "% 1000 messages (1024000 bytes) consumed in 500ms: 2000 msgs/s (2.05 MB/s)\n"
    assert rdkafka.parse_consumed(output, 1000).records_per_second == 2000
    with pytest.raises(rdkafka.ClientFailed, match="1000 of 1001"):
        rdkafka.parse_consumed(output, 1001)


def test_cpu_time_is_found_behind_a_name_with_spaces_and_parentheses() -> None:
    fields = " ".join(str(number) for number in range(3, 53))
    assert processes.parse_cpu_ticks(f"12 (a b) c) {fields}") == 14 + 15


def test_this_process_uses_cpu_and_memory() -> None:
    with processes.CpuMeter([os.getpid()]) as cpu:
        sum(range(3_000_000))
    assert cpu.seconds > 0
    assert processes.resident_megabytes([os.getpid()]) > 5


def test_several_processes_count_together() -> None:
    alone = processes.resident_megabytes([os.getpid()])
    assert 1.9 * alone < processes.resident_megabytes([os.getpid()] * 2) < 2.1 * alone


def answer(error: int) -> bytes:
    body = struct.pack(">ii", 1, 1) + wire.string("t") + struct.pack(">iihqqqi", 1, 0, error, 5, -1, 0, 0)
    return struct.pack(">i", len(body)) + body


def test_answers_are_counted_however_they_arrive() -> None:
    responses = Answers()
    stream = answer(0) * 3
    assert sum(responses.feed(stream[position : position + 7]) for position in range(0, len(stream), 7)) == 3


def test_a_failed_answer_ends_the_load() -> None:
    with pytest.raises(wire.RequestRejected, match="error 6"):
        Answers().feed(answer(6))


def test_hand_made_batches_are_record_batches() -> None:
    batch = wire.record_batch([b"one", b"two"], timestamp_ms=5)
    base_offset, length, _epoch, magic = struct.unpack_from(">qiib", batch)
    assert (base_offset, length, magic) == (0, len(batch) - 12, 2)
    assert struct.unpack_from(">i", batch, 57) == (2,)


def metadata(error: int, partitions: list[tuple[int, int, int, list[int], list[int]]]) -> bytes:
    brokers = b"".join(
        struct.pack(">i", 1 + n) + wire.string("h") + struct.pack(">i", 9000 + n) + wire.string(None) for n in range(3)
    )
    body = struct.pack(">iii", 1, 0, 3) + brokers + wire.string("cluster") + struct.pack(">iih", 1, 1, error)
    body += wire.string("t") + b"\x00" + struct.pack(">i", len(partitions))
    for partition_error, index, leader, replicas, in_sync in partitions:
        body += struct.pack(">hii", partition_error, index, leader)
        for ids in (replicas, in_sync):
            body += struct.pack(f">i{len(ids)}i", len(ids), *ids)
    return body


def test_metadata_has_leaders_and_replicas_in_sync() -> None:
    state = wire.topic_state(metadata(0, [(0, 0, 2, [2, 3, 1], [2, 3, 1]), (0, 1, 3, [3, 1], [3])]))
    assert state.ports == {1: 9000, 2: 9001, 3: 9002}
    assert state.partitions == {0: PartitionState(2, [2, 3, 1], [2, 3, 1]), 1: PartitionState(3, [3, 1], [3])}
    assert state.leader_port(0) == 9001
    assert not state.in_sync_everywhere


def test_a_topic_is_in_sync_when_all_its_replicas_are() -> None:
    assert wire.topic_state(metadata(0, [(0, 0, 2, [2, 3], [3, 2])])).in_sync_everywhere


@pytest.mark.parametrize(
    "response", [metadata(3, []), metadata(0, [(5, 0, -1, [1], [1])])], ids=["unknown", "leaderless"]
)
def test_without_a_leader_nobody_can_be_asked(response: bytes) -> None:
    state = wire.topic_state(response)
    assert state.leader_port(0) is None
    assert not state.in_sync_everywhere
