"""Changes that the page may make with `--manage`. Each is one call, and returns a sentence for the timeline."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.client.admin.admin import Admin
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.admin.partition_counts import create_partitions
from tidelog.client.admin.reassignment_admin import ReassignmentAdmin
from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.producer.producer import Producer
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.clock import SystemClock
from tidelog.types import TopicPartition


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
        return f"{topic}: the preferred leader of {len(partitions)} partitions was elected."

    async def move(self, topic: str, partition: int, replicas: Sequence[int] | None) -> str:
        """None cancels the move that is under way."""
        where = TopicPartition(topic, partition)
        outcomes = await ReassignmentAdmin(self._cluster).alter({where: None if replicas is None else tuple(replicas)})
        for error in outcomes.values():
            raise error
        return f"{where}: {'the move was cancelled' if replicas is None else f'moves to {list(replicas)}'}."

    async def produce(self, topic: str, key: str | None, value: str | None, partition: int | None) -> str:
        async with Producer(self._cluster, SystemClock()) as producer:
            written = await producer.send(
                topic,
                None if value is None else value.encode(),
                key=None if key is None else key.encode(),
                partition=partition,
            )
        return f"{topic}-{written.partition}: one record was written at offset {written.offset}."

    async def abort_transaction(self, transactional_id: str) -> str:
        await TransactionAdmin(self._cluster).fence(transactional_id)
        return f"The producer {transactional_id} was fenced; its open transaction was aborted."

    async def kill_broker(self, broker_id: int) -> str:
        await asyncio.to_thread(self._require_local().run, "kill", broker_id)
        return f"Broker {broker_id} was killed from the console."

    async def start_broker(self, broker_id: int) -> str:
        await asyncio.to_thread(self._require_local().run, "start", broker_id)
        return f"Broker {broker_id} was started from the console."

    @property
    def is_local(self) -> bool:
        return self._local is not None

    def _require_local(self) -> "LocalCluster":
        if self._local is None:
            raise NotManaged("only brokers of `tidelog up` on this machine can be killed and started from here")
        return self._local


class LocalCluster:
    """The cluster of `tidelog up` in a data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def run(self, command: str, broker_id: int) -> None:
        import subprocess
        import sys

        arguments = [sys.executable, "-m", "tidelog", command, str(broker_id), "--data", str(self.data)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise NotManaged(done.stderr.strip() or done.stdout.strip() or f"tidelog {command} failed")
