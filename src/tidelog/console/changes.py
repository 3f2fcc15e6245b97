"""Changes that the page may make with `--manage`. Each is one call, and returns a sentence for the timeline."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.admin.hanging_transactions import find_hanging
from tidelog.client.admin.partition_counts import create_partitions
from tidelog.client.admin.reassignment_admin import ReassignmentAdmin
from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.producer.producer import Producer
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.clock import SystemClock
from tidelog.types import TopicPartition

MAX_LOG_BYTES = 256 * 1024
MAX_LOG_LINES = 500


class NotManaged(Exception):
    """The message says why this cannot be done from here."""


class Changes:
    def __init__(self, cluster: Cluster, local: "LocalCluster | None") -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._local = local

    async def create_topic(self, name: str, partitions: int, factor: int, settings: Mapping[str, str]) -> str:
        await self._admin.create_topic(name, partitions=partitions, replication_factor=factor, settings=settings)
        return f"Topic {name} was created from the console."

    async def delete_topic(self, name: str) -> str:
        await self._admin.delete_topic(name)
        return f"Topic {name} was deleted from the console."

    async def add_partitions(self, name: str, count: int) -> str:
        await create_partitions(self._cluster, name, count)
        return f"Topic {name} has {count} partitions now."

    async def alter_config(self, kind: str, name: str, key: str, value: str | None) -> str:
        """None removes the setting: its default holds again."""
        resource = Resource(ResourceKind.TOPIC if kind == "topic" else ResourceKind.BROKER, name)
        values, unset = ({}, [key]) if value is None else ({key: value}, [])
        is_secret = await self._is_sensitive(kind, name, key)
        await ConfigAdmin(self._cluster).alter(resource, values, unset)
        text = "is at its default" if value is None else "was changed" if is_secret else f"= {value}"
        return f"{kind.capitalize()} {name}: {key} {text}."

    async def _is_sensitive(self, kind: str, name: str, key: str) -> bool:
        """A setting that the cluster does not know yet may be a secret too."""
        if kind == "topic":
            found = (await self._admin.topic_settings(name))[name]
        else:
            found = await self._admin.broker_settings(int(name))
        return next((bool(each.is_sensitive) for each in found.configs if each.name == key), True)

    async def elect(self, topic: str, partitions: Sequence[int]) -> str:
        chosen = {TopicPartition(topic, number) for number in partitions}
        outcomes = await ReassignmentAdmin(self._cluster).elect(chosen, is_unclean=False)
        for error in outcomes.values():
            if error is not None:
                raise error
        if len(partitions) == 1:
            return f"{topic}-{partitions[0]}: the preferred leader was elected from the console."
        return f"{topic}: the preferred leaders of {len(partitions)} partitions were elected from the console."

    async def move(self, topic: str, partition: int, replicas: Sequence[int] | None) -> str:
        """None cancels the move that is under way."""
        where = TopicPartition(topic, partition)
        outcomes = await ReassignmentAdmin(self._cluster).alter({where: None if replicas is None else tuple(replicas)})
        for error in outcomes.values():
            raise error
        return f"{where}: {'the move was cancelled' if replicas is None else f'moves to {list(replicas)}'}."

    async def produce(
        self, topic: str, key: str | None, value: str | None, partition: int | None, headers: Mapping[str, str]
    ) -> str:
        async with Producer(self._cluster, SystemClock()) as producer:
            written = await producer.send(
                topic,
                None if value is None else value.encode(),
                key=None if key is None else key.encode(),
                partition=partition,
                headers=tuple((name, text.encode()) for name, text in headers.items()),
            )
        return f"{topic}-{written.partition}: one record was written at offset {written.offset}."

    async def abort_transaction(self, transactional_id: str) -> str:
        await TransactionAdmin(self._cluster).fence(transactional_id)
        return f"The producer {transactional_id} was fenced; its open transaction was aborted."

    async def abort_hanging(self, topic: str, partition: int, producer_id: int) -> str:
        """Only one that no coordinator knows: the coordinator of any other may be about to commit it."""
        where = TopicPartition(topic, partition)
        found = await find_hanging(self._cluster, [where], time.time_ns() // 1_000_000, timeout_s=5.0)
        producer = next((each.producer for each in found if each.producer.producer_id == producer_id), None)
        if producer is None:
            raise NotManaged(f"producer {producer_id} has no hanging transaction on {where}")
        await TransactionAdmin(self._cluster).abort_hanging(where, producer)
        return f"{where}: the hanging transaction of producer {producer_id} was aborted."

    async def kill_broker(self, broker_id: int) -> str:
        await asyncio.to_thread(self._require_local().run, "kill", broker_id)
        return f"Broker {broker_id} was killed from the console."

    async def start_broker(self, broker_id: int) -> str:
        await asyncio.to_thread(self._require_local().run, "start", broker_id)
        return f"Broker {broker_id} was started from the console."

    async def log_of_broker(self, broker_id: int) -> dict[str, object]:
        """The newest lines of its log, which only the machine of `tidelog up` has."""
        local = self._require_local()
        return {"file": str(local.log_file(broker_id)), "lines": await asyncio.to_thread(local.log_lines, broker_id)}

    @property
    def is_local(self) -> bool:
        return self._local is not None

    def _require_local(self) -> "LocalCluster":
        if self._local is None:
            raise NotManaged("this is for brokers of `tidelog up` on this machine only")
        return self._local


class LocalCluster:
    """The cluster of `tidelog up` in a data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def log_file(self, broker_id: int) -> Path:
        return DataDirectory(str(self.data)).log_file(broker_id)

    def log_lines(self, broker_id: int) -> list[str]:
        """Raises NotManaged if there is no log."""
        try:
            with self.log_file(broker_id).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - MAX_LOG_BYTES))
                lines = log.read(MAX_LOG_BYTES).decode(errors="replace").splitlines()
        except OSError as error:
            raise NotManaged(f"the log of broker {broker_id} cannot be read: {error.strerror}") from error
        return lines[-MAX_LOG_LINES:]

    def run(self, command: str, broker_id: int) -> None:
        import subprocess
        import sys

        arguments = [sys.executable, "-m", "tidelog", command, str(broker_id), "--data", str(self.data)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise NotManaged(done.stderr.strip() or done.stdout.strip() or f"tidelog {command} failed")
