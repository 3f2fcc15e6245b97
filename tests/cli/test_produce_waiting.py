"""`tidelog produce` says after a few seconds what it waits for."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.local_cluster import local_cluster
from tests.cli.process import tidelog
from tidelog.cli.produce_waiting import EXPLAIN_AFTER_S, Waiting, reason_to_wait
from tidelog.client.producer.producer_settings import ProducerSettings
from tidelog.client.routing.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.runtime.virtual_time import run_virtually
from tidelog.types import ZERO_UUID


def topic(leader: int, replicas: Sequence[int], in_sync: Sequence[int]) -> TopicMetadata:
    healthy = PartitionMetadata(0, 1, 5, (1, 2, 3), (1, 2, 3), ())
    other = PartitionMetadata(1, leader, 5, tuple(replicas), tuple(in_sync), ())
    return TopicMetadata("orders", ZERO_UUID, False, {0: healthy, 1: other})


def test_too_few_in_sync_replicas_are_named() -> None:
    assert reason_to_wait(topic(1, [1, 2, 3], [1]), 2) == (
        "waiting for in-sync replicas of orders-1: 2 are needed, in sync is only broker 1"
        " (`tidelog partition why orders 1` says more)"
    )


def test_leader_that_is_missing_is_named() -> None:
    assert reason_to_wait(topic(-1, [1, 2, 3], [1]), 2) == (
        "waiting for a leader of orders-1 (`tidelog partition why orders 1` says more)"
    )


def test_a_topic_without_enough_replicas_needs_no_more_than_it_has() -> None:
    assert reason_to_wait(topic(1, [1], [1]), 2) == "waiting for acknowledgements"


def test_notes_are_for_long_waits_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    producer: Any = SimpleNamespace(acknowledged_records=0, settings=ProducerSettings(delivery_timeout_s=60.0))
    cluster: Any = SimpleNamespace(metadata=ClusterMetadata())

    async def main() -> None:
        waiting = Waiting(cluster, producer, "orders")
        async with waiting.explained():
            await asyncio.sleep(EXPLAIN_AFTER_S * 1.9)
            waiting.lines_read = 1
            await asyncio.sleep(EXPLAIN_AFTER_S)  # not yet a whole period without an acknowledgement
            assert capsys.readouterr().err == ""
            await asyncio.sleep(EXPLAIN_AFTER_S * 3)
            assert capsys.readouterr().err == "waiting for topic orders; gives up after 60 s\n"
            producer.acknowledged_records = 1
            await asyncio.sleep(EXPLAIN_AFTER_S * 3)
            assert capsys.readouterr().err == ""

    run_virtually(main())


def test_producer_with_too_few_replicas_is_not_silent(tmp_path: Path) -> None:
    with local_cluster(tmp_path / "data", brokers=2) as cluster:
        cluster.up("--set", "min.insync.replicas=2")
        bootstrap = ["--bootstrap", cluster.bootstrap]
        created = tidelog("topic", "create", "orders", "--partitions", "1", *bootstrap)
        assert created.returncode == 0, created
        cluster.run("kill", "2")
        command = [sys.executable, "-m", "tidelog", "produce", "orders", *bootstrap]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdin is not None
                assert process.stderr is not None
                process.stdin.write("one\n")
                process.stdin.close()
                said = process.stderr.readline()
                while said.startswith("waiting for") and "in-sync" not in said:  # until broker 2 leaves the ISR
                    said = process.stderr.readline()
                assert said == (
                    "waiting for in-sync replicas of orders-0: 2 are needed, in sync is only broker 1"
                    " (`tidelog partition why orders 0` says more); gives up after 60 s\n"
                )
                cluster.run("start", "2")
                assert process.wait(60) == 0
                assert process.stderr.read().endswith("1 record written to orders\n")
            finally:
                process.kill()
