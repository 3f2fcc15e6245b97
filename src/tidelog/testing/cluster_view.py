"""Contents of a test cluster as plain Python values: records, groups, open transactions.

Tidelog's own client reads them. Its connections are free of injected faults, and its requests are not recorded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.errors import UnknownTopicOrPartition
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.testing.links import KitNetwork
from tidelog.testing.machines import Machines
from tidelog.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from tidelog.client.routing.cluster import Cluster

MAX_FRAME_BYTES = 2**31 - 1
TIMEOUT_S = 10.0
POLL_S = 0.01
"""Short: a partition may end with aborted records and markers, which no poll returns."""

OPEN_STATES = ["Ongoing", "PrepareCommit", "PrepareAbort"]


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One record of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Member:
    """Member of a group."""

    member_id: str
    client_id: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Consumer group."""

    group_id: str
    protocol: str
    """`classic` or `consumer`."""
    state: str
    members: tuple[Member, ...]
    committed: dict[tuple[str, int], int]
    """Committed offsets by topic and partition."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """Transaction that is neither committed nor aborted."""

    transactional_id: str
    state: str
    producer_id: int
    partitions: tuple[tuple[str, int], ...]


class ClusterView:
    """Methods run on the cluster's event loop. They import the client, which the brokers do not need."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._client: Cluster | None = None
        self._asked: list[BrokerId] = []

    def _cluster(self) -> "Cluster":
        """A new client whenever other brokers than before can be asked."""
        from tidelog.client.network.bootstrap import parse_bootstrap
        from tidelog.client.routing.cluster import Cluster

        up_to_date = [broker_id for broker_id in self._machines.ids() if self._machines.is_up_to_date(broker_id)]
        if up_to_date != self._asked:
            self.close()
            self._asked = up_to_date
        if self._client is None:
            machines = self._machines
            network = KitNetwork(SocketNetwork(MAX_FRAME_BYTES), machines.wiring, machines.is_up_to_date)
            bootstrap = parse_bootstrap(",".join(self._machines.addresses))
            self._client = Cluster(network, bootstrap, SystemRandomness(), client_id="tidelog-testing")
        return self._client

    def close(self) -> None:
        """Also after a reset: topics and connections are new."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    async def topics(self) -> list[str]:
        """Without internal ones."""
        metadata = await self._cluster().ask_topics(None)
        return sorted(name for name in metadata.topics if not name.startswith("__"))

    async def records(self, topic: str, *, is_committed: bool) -> list[TopicRecord]:
        """All records by partition and offset; empty if there is no such topic."""
        from tidelog.client.consumer.consumer import BEGINNING, END, Consumer
        from tidelog.client.consumer.consumer_settings import READ_COMMITTED, READ_UNCOMMITTED, ConsumerSettings
        from tidelog.client.consumer.offsets import list_offsets

        cluster = self._cluster()
        metadata = await cluster.ask_topics([topic])
        if isinstance(metadata.errors.get(topic), UnknownTopicOrPartition):
            return []
        keys = [TopicPartition(topic, partition) for partition in metadata.topic(topic).partitions]
        isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        ends = await list_offsets(cluster, dict.fromkeys(keys, END), isolation_level=isolation, timeout_s=TIMEOUT_S)
        starts = await list_offsets(cluster, dict.fromkeys(keys, BEGINNING), timeout_s=TIMEOUT_S)
        wanted = {key: ends[key].offset for key in keys if starts[key].offset < ends[key].offset}
        found: list[TopicRecord] = []
        async with Consumer(cluster, ConsumerSettings(isolation_level=isolation, reset_to=BEGINNING)) as consumer:
            await consumer.assign({key: starts[key].offset for key in wanted})
            while any(consumer.positions[key] < end for key, end in wanted.items()):
                found += [
                    TopicRecord(each.partition, each.offset, each.key, each.value, each.headers, each.timestamp_ms)
                    for each in await consumer.poll(POLL_S)
                    if each.offset < wanted[TopicPartition(topic, each.partition)]
                ]
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def groups(self) -> dict[str, Group]:
        from tidelog.client.admin.group_admin import GroupAdmin

        admin = GroupAdmin(self._cluster(), timeout_s=TIMEOUT_S)
        found = {}
        for summary in await admin.list_groups():
            described = await admin.describe(summary.group_id)
            offsets = await admin.offsets(summary.group_id)
            members = tuple(
                Member(member.member_id, member.client_id, tuple((*key,) for key in member.partitions))
                for member in described.members
            )
            committed = {(key.topic, key.partition): each.offset for key, each in sorted(offsets.items())}
            found[summary.group_id] = Group(summary.group_id, described.kind, described.state, members, committed)
        return found

    async def transactions(self) -> list[OpenTransaction]:
        from tidelog.client.admin.transaction_admin import TransactionAdmin

        admin = TransactionAdmin(self._cluster(), timeout_s=TIMEOUT_S)
        found = []
        for each in await admin.list_transactions(OPEN_STATES):
            described = await admin.describe(each.transactional_id)
            partitions = tuple((key.topic, key.partition) for key in sorted(described.partitions))
            found.append(OpenTransaction(each.transactional_id, described.state, described.producer_id, partitions))
        return found
