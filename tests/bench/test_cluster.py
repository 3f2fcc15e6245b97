"""Decisions of the benchmark of three brokers."""

from pathlib import Path

from bench import page_cache
from bench.clusters import KafkaCluster, TidelogCluster
from bench.failover import Ack, first_acknowledged
from bench.page_cache import ENOUGH_FREE_BYTES, STEP_BYTES


def test_a_record_sent_before_the_kill_does_not_end_the_failover() -> None:
    acks = [Ack(sent=9.9, acknowledged=10.1), Ack(sent=10.2, acknowledged=12.0), Ack(sent=10.1, acknowledged=11.0)]
    assert first_acknowledged(acks, killed=10.0) == 11.0


def test_without_an_acknowledgement_the_failover_goes_on() -> None:
    assert first_acknowledged([Ack(sent=9.0, acknowledged=9.5)], killed=10.0) is None


class Memory:
    """Some bytes of it are free; reading a step of a file takes as much of it as a limit allows."""

    def __init__(self, free_bytes: int, limit_bytes: int) -> None:
        self.free_bytes = free_bytes
        self._limit_bytes = limit_bytes

    def read_step(self) -> None:
        taken = min(STEP_BYTES, self._limit_bytes)
        self._limit_bytes -= taken
        self.free_bytes -= taken


def test_memory_is_filled_until_little_is_free() -> None:
    memory = Memory(ENOUGH_FREE_BYTES + 10 * STEP_BYTES, limit_bytes=10**15)
    assert page_cache.fill(memory.read_step, lambda: memory.free_bytes) == 10
    assert memory.free_bytes == ENOUGH_FREE_BYTES


def test_filling_ends_where_reading_takes_no_more_memory() -> None:
    memory = Memory(ENOUGH_FREE_BYTES + 10 * STEP_BYTES, limit_bytes=3 * STEP_BYTES)
    assert page_cache.fill(memory.read_step, lambda: memory.free_bytes) == 4


def test_full_memory_is_left_alone() -> None:
    memory = Memory(ENOUGH_FREE_BYTES, limit_bytes=10**15)
    assert page_cache.fill(memory.read_step, lambda: memory.free_bytes) == 0


def test_free_memory_is_read_from_the_system() -> None:
    assert page_cache.parse_free_bytes("MemTotal:  100 kB\nMemFree:   30 kB\nCached:  5 kB\n") == 30 * 1024
    assert page_cache.free_bytes() > 0


def test_brokers_of_a_cluster_have_ports_and_directories_of_their_own(tmp_path: Path) -> None:
    for cluster in (TidelogCluster(tmp_path / "tidelog"), KafkaCluster(tmp_path / "kafka")):
        assert len(set(cluster.ports)) == 3
        assert len({member.directory for member in cluster.members.values()}) == 3
        assert cluster.bootstrap.count(":") == 3
