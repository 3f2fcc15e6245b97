"""Topics, partitions and brokers as the page shows them, with the reason of every replica that is out of sync."""

import asyncio
import time

from tidelog.cli.local_cluster.broker_queries import BrokerQueries, query_cluster
from tidelog.cli.local_cluster.view import PartitionView
from tidelog.cli.partition_diagnosis import Findings, diagnosis
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.hanging_transactions import OPEN_STATES, find_hanging
from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.network.retries import reason_of
from tidelog.console.observer import Observer, now_ms
from tidelog.errors import UnknownTopicOrPartition
from tidelog.protocol.messages.describe_configs import DescribeConfigsResult
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from tidelog.types import BrokerId, TopicPartition

SIZES_AGE_S = 10.0
"""Sizes of all replicas are asked for at most this often."""
SOURCES = {1: "topic", 2: "this broker", 3: "all brokers", 4: "server.properties", 5: "default", 6: "group"}
MAX_ASKED = 200
"""Partitions whose leaders are asked for producers."""


class Topics:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._cluster = observer.cluster
        self._admin = Admin(observer.cluster, timeout_s=5.0)
        self._sizes: dict[TopicPartition, int] = {}
        self._sizes_at = -SIZES_AGE_S

    async def list_topics(self) -> list[dict[str, object]]:
        await self._refresh_sizes()
        found: dict[str, dict[str, object]] = {}
        counts: dict[str, list[int]] = {}
        for where, partition in self._observer.snapshot.partitions.items():
            count = counts.setdefault(where.topic, [0, 0, 0, 0, 0])
            count[0] += 1
            count[1] = max(count[1], len(partition.replicas))
            count[2] += partition.is_under_replicated
            count[3] += partition.leader is None
            count[4] += self._sizes.get(where, 0)
            found[where.topic] = {"internal": partition.is_internal}
        rates = self._observer.samples
        return [
            {
                "name": name,
                "internal": found[name]["internal"],
                "partitions": count[0],
                "replicas": count[1],
                "under_replicated": count[2],
                "leaderless": count[3],
                "bytes": count[4],
                "rate": rates.newest(f"records/{name}"),
            }
            for name, count in sorted(counts.items())
        ]

    async def _refresh_sizes(self) -> None:
        if time.monotonic() - self._sizes_at < SIZES_AGE_S:
            return
        self._sizes_at = time.monotonic()
        sizes: dict[TopicPartition, int] = {}
        for answer in (await self._admin.describe_log_dirs()).values():
            if isinstance(answer, DescribeLogDirsResponse):
                for directory in answer.results:
                    for topic in directory.topics:
                        for partition in topic.partitions:
                            where = TopicPartition(topic.name, partition.partition_index)
                            sizes[where] = max(sizes.get(where, 0), partition.partition_size)
        self._sizes = sizes

    async def describe(self, topic: str) -> dict[str, object]:
        await self._admin.describe_topic(topic)  # raises an error if it does not exist
        settings = (await self._admin.topic_settings(topic, is_explained=True))[topic]
        return {
            "name": topic,
            "settings": _settings(settings),
            "rates": self._observer.samples.get(f"records/{topic}"),
        }

    async def describe_partition(self, topic: str, number: int) -> dict[str, object]:
        """Each replica with its lag, and the sentences that say why the partition is as it is."""
        where = TopicPartition(topic, number)
        queries = BrokerQueries(self._cluster.network)
        try:
            addresses = [broker.address for broker in self._cluster.metadata.brokers.values()]
            responses = await query_cluster(queries, addresses, topic)
        finally:
            queries.close()
        found = next((each for each in responses.partitions if each.topic_partition == where), None)
        if found is None:
            raise UnknownTopicOrPartition(f"{where} does not exist")
        settings = (await self._admin.topic_settings(topic))[topic]
        min_in_sync = next((int(each.value or 1) for each in settings.configs if each.name == "min.insync.replicas"), 1)
        findings = Findings(found, responses.members.keys(), min_in_sync, (), None, now_ms())
        return {**_partition(found), "min_in_sync": min_in_sync, "why": diagnosis(findings)}

    async def describe_broker(self, broker_id: BrokerId) -> dict[str, object]:
        settings = await self._admin.broker_settings(broker_id, is_explained=True)
        answer = (await self._admin.describe_log_dirs()).get(broker_id)
        directories: list[dict[str, object]] = []
        if isinstance(answer, DescribeLogDirsResponse):
            directories = [
                {
                    "path": each.log_dir,
                    "error": each.offline_reason or None,
                    "replicas": sum(len(topic.partitions) for topic in each.topics),
                    "bytes": sum(found.partition_size for topic in each.topics for found in topic.partitions),
                }
                for each in answer.results
            ]
        elif answer is not None:
            directories = [{"path": "?", "error": reason_of(answer), "replicas": 0, "bytes": 0}]
        return {
            "id": broker_id,
            "settings": _settings(settings),
            "directories": directories,
            "metrics": self._observer.metrics_page(broker_id),
        }

    async def producers(self, topic: str) -> list[dict[str, object]]:
        """Producers whose state the leaders keep: those with idempotence or transactions that wrote lately."""
        admin = TransactionAdmin(self._cluster, timeout_s=5.0)
        led = [
            TopicPartition(topic, number)
            for number, found in sorted((await self._admin.describe_topic(topic)).partitions.items())
            if found.leader in self._cluster.metadata.brokers
        ]
        answers = await asyncio.gather(*(admin.producers(where) for where in led[:MAX_ASKED]))
        return [
            {
                "partition": where.partition,
                "producer_id": each.producer_id,
                "epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_ms": each.last_timestamp,
                "transaction_start": None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
            }
            for where, producers in zip(led, answers, strict=False)
            for each in producers
        ]

    async def transactions(self) -> list[dict[str, object]]:
        admin = TransactionAdmin(self._cluster, timeout_s=5.0)
        found = []
        for each in await admin.list_transactions():
            row: dict[str, object] = each._asdict()
            if each.state in OPEN_STATES:
                described = await admin.describe(each.transactional_id)
                row |= {
                    "start_ms": described.start_ms,
                    "timeout_ms": described.timeout_ms,
                    "partitions": [str(where) for where in described.partitions],
                }
            found.append(row)
        return found

    async def hanging_transactions(self) -> list[dict[str, object]]:
        """Those that no coordinator knows: only an abort by hand ends them."""
        partitions = self._observer.snapshot.partitions
        led = [where for where, found in partitions.items() if found.leader in self._cluster.metadata.brokers]
        return [
            {
                "topic": each.where.topic,
                "partition": each.where.partition,
                "producer_id": each.producer.producer_id,
                "start_offset": each.producer.current_txn_start_offset,
                "last_ms": each.producer.last_timestamp,
            }
            for each in await find_hanging(self._cluster, led, now_ms(), timeout_s=5.0)
        ]


def _settings(result: DescribeConfigsResult) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "source": SOURCES.get(each.config_source, "default"),
            "read_only": bool(each.read_only),
            "sensitive": bool(each.is_sensitive),
            "about": each.documentation,
        }
        for each in sorted(result.configs, key=lambda each: each.name)
    ]


def _partition(found: PartitionView) -> dict[str, object]:
    return {
        "topic": found.topic_partition.topic,
        "partition": found.topic_partition.partition,
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "replicas": list(found.replicas),
        "in_sync": list(found.in_sync),
        "high_watermark": found.high_watermark,
        "lag": {str(replica): lag for replica, lag in found.lag.items()},
        "out_of_sync": [
            {
                "replica": each.replica,
                "rule": each.rule,
                "remedy": each.remedy,
                "behind": each.behind,
                "since_ms": each.since_ms,
            }
            for each in found.out_of_sync
        ],
        "moving": None
        if found.move is None
        else {
            "adding": list(found.move.adding),
            "removing": list(found.move.removing),
            "copied": found.move.copied_percent,
        },
    }
