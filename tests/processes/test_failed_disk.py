"""A disk of a broker fails: others lead at once what was on it, and the broker goes on with its other disk (R5)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.cluster import BROKERS, PartitionState, wait_for
from tests.processes.coordination import Coordination
from tests.processes.history import FollowingReader, IdempotentWriter, check, read_all
from tests.processes.load import TOPIC, create_topic
from tests.processes.two_disks import TwoDisks
from tools.ports import free_ports

PARTITIONS = 6
"""Broker 1 leads two of them, one on each disk."""
NOTICE_MS = 200
TAKEOVER_S = 1.0
SLACK_S = 20.0
"""For a busy machine."""


@pytest.fixture
def three(coordination: Coordination, tmp_path: Path) -> Iterator[TwoDisks]:
    settings = {"replica.high.watermark.checkpoint.interval.ms": str(NOTICE_MS)}
    found = TwoDisks(tmp_path, coordination, free_ports(2 * len(BROKERS)), settings)
    try:
        found.start()
        yield found
    finally:
        found.close()


def states(cluster: TwoDisks) -> list[PartitionState]:
    return [cluster.state(TOPIC, partition) for partition in range(PARTITIONS)]


def are_all_in_sync(cluster: TwoDisks) -> bool:
    return all(len(each.in_sync) == len(BROKERS) for each in states(cluster))


def led_by_1(cluster: TwoDisks) -> set[int]:
    return {partition for partition in range(PARTITIONS) if cluster.state(TOPIC, partition).leader == 1}


def test_others_lead_what_was_on_a_failed_disk(three: TwoDisks) -> None:
    create_topic(three, TOPIC, PARTITIONS)
    with (
        FollowingReader(three.bootstrap, TOPIC, PARTITIONS) as reader,
        IdempotentWriter(three.bootstrap, TOPIC, PARTITIONS) as writer,
    ):
        writer.wait_for_more()
        wait_for(lambda: are_all_in_sync(three), lambda: "some replicas are not in sync")
        disk = three.disks(1)[1]
        lost = {partition for partition in led_by_1(three) if (disk / f"{TOPIC}-{partition}").exists()}
        kept = led_by_1(three) - lost
        assert lost
        assert kept
        disk.rename(disk.with_name("pulled-out"))  # open files go on; the next checkpoint does not
        started = time.monotonic()
        wait_for(
            lambda: not led_by_1(three) & lost,
            lambda: f"broker 1 leads {led_by_1(three)}, and {lost} were on the failed disk: {states(three)}",
        )
        took_s = time.monotonic() - started
        writer.wait_for_more()
    assert took_s < NOTICE_MS / 1000 + TAKEOVER_S + SLACK_S
    check(writer, read_all(three.bootstrap, TOPIC, PARTITIONS), reader)
    assert three.brokers[1].is_running
    for partition in range(PARTITIONS):
        three.wait_for_state(TOPIC, partition, lambda found: {2, 3} <= found.in_sync)
