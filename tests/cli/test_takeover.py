"""A broker on log dirs that have logs but no coordination store, as Apache Kafka leaves them."""

import asyncio
import time
from pathlib import Path

from tests.cli.client import consume, produce, topic_ids
from tests.cli.process import running_broker, settings
from tests.storage.logs import batch_of, manager_on
from tidelog.config.topic import TopicSettings
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.disk import SystemDisk
from tidelog.storage.log_directory import META_PROPERTIES
from tidelog.types import TopicPartition, Uuid, uuid_text

CLUSTER_ID = "ClusterOfApacheKafkaAA"
ORDERS_ID: Uuid = bytes(range(16))
KRAFT_PROPERTIES = f"version=1\nnode.id=7\ndirectory.id=DirectoryIdOfKafkaAAAA\ncluster.id={CLUSTER_ID}\n"


async def write_logs(log_dir: Path) -> None:
    """`orders` with two partitions and an id, `old` with one and no id, as brokers before 2.8 wrote it."""
    now_ms = int(time.time() * 1000)
    clock = ManualClock(now_ms)
    manager = await manager_on(SystemDisk(), str(log_dir), clock=clock, cluster_id=CLUSTER_ID, broker_id=7)
    for name, partition, topic_id in (("orders", 0, ORDERS_ID), ("orders", 1, ORDERS_ID), ("old", 0, None)):
        log = manager.create(TopicPartition(name, partition), topic_id, TopicSettings())
        for number in range(3):
            log.append_as_leader(batch_of(b"%s-%d-%d" % (name.encode(), partition, number), timestamp=now_ms), 2)
        log.raise_high_watermark(log.log_end_offset)
    await manager.close()
    (log_dir / META_PROPERTIES).write_text(KRAFT_PROPERTIES)


def test_logs_are_taken_over_with_their_ids_and_records(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    asyncio.run(write_logs(log_dir))
    with running_broker(tmp_path / "log", *settings(log_dir)) as broker:
        assert f"broker 7 of cluster {CLUSTER_ID}" in broker.greeting
        assert consume(broker.address, "orders", 3, partition=1) == ["orders-1-0", "orders-1-1", "orders-1-2"]
        assert consume(broker.address, "old", 3) == ["old-0-0", "old-0-1", "old-0-2"]
        ids = topic_ids(broker.address, "orders", "old")
        assert ids["orders"] == uuid_text(ORDERS_ID)
        produce(broker.address, "old", "new")
        assert broker.stop() == 0
    with running_broker(tmp_path / "log", *settings(log_dir)) as broker:
        assert topic_ids(broker.address, "orders", "old") == ids
        assert consume(broker.address, "old", 4)[-1] == "new"
        assert broker.stop() == 0
    assert (log_dir / META_PROPERTIES).read_text() == KRAFT_PROPERTIES
