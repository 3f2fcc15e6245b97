"""Public admin client: topics, their settings, groups and the cluster."""

from collections.abc import Mapping
from contextlib import AsyncExitStack

from tidelog.client.admin.admin import Admin as InternalAdmin
from tidelog.client.admin.admin import own_settings
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.admin.partition_counts import create_partitions
from tidelog.client.api.client_config import open_cluster, parse_config
from tidelog.client.api.values import Broker, ClusterInfo, Group, GroupMember, Partition, Topic
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import TopicMetadata
from tidelog.types import NO_OFFSET, TopicPartition


class Admin:
    """`async with Admin("localhost:29092") as admin:`. Retriable errors are retried until `timeout_s`."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        timeout_s: float = 30.0,
        client_id: str | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`config`: settings with the names of Kafka's clients."""
        self._bootstrap_servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._config = parse_config(config, {})
        self._cluster: Cluster | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Admin":
        self._cluster = await self._stack.enter_async_context(
            open_cluster(self._bootstrap_servers, self._client_id, self._config)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._cluster = None
        await self._stack.aclose()

    # ---- topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Topic:
        """Returns when every broker knows the topic. The brokers have defaults for both numbers."""
        created = await self._admin.create_topic(
            name, partitions=partitions or -1, replication_factor=replication_factor or -1, settings=settings
        )
        return _topic(created)

    async def delete_topic(self, name: str) -> None:
        """Returns when no broker knows the topic any more."""
        await self._admin.delete_topic(name)

    async def add_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic, up to `count` in total."""
        await create_partitions(self._open, name, count, timeout_s=self._timeout_s)

    async def list_topics(self) -> list[Topic]:
        """Sorted by name, internal ones included."""
        return [_topic(found) for found in await self._admin.list_topics()]

    async def describe_topic(self, name: str) -> Topic:
        """Raises UnknownTopicOrPartition."""
        return _topic(await self._admin.describe_topic(name))

    async def topic_settings(self, name: str) -> dict[str, str]:
        """Settings of the topic itself, without defaults."""
        return own_settings((await self._admin.topic_settings(name))[name])

    async def set_topic_settings(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Change some settings of a topic; None removes one."""
        await ConfigAdmin(self._open, timeout_s=self._timeout_s).alter_or_unset(
            Resource(ResourceKind.TOPIC, name), settings
        )

    # ---- groups

    async def list_groups(self) -> list[str]:
        """Ids of all groups, sorted."""
        return [summary.group_id for summary in await self._groups.list_groups()]

    async def describe_group(self, group_id: str) -> Group:
        """Raises GroupIdNotFound."""
        found = await self._groups.describe(group_id)
        members = tuple(
            GroupMember(member.member_id, member.client_id, member.host, member.partitions) for member in found.members
        )
        return Group(found.group_id, found.kind, found.state, members)

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Committed offsets of a group."""
        offsets = await self._groups.offsets(group_id)
        return {key: found.offset for key, found in offsets.items() if found.offset != NO_OFFSET}

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets of a group that has no members."""
        await self._groups.commit(group_id, offsets)

    async def delete_group(self, group_id: str) -> None:
        """Raises NonEmptyGroup if it has members."""
        await self._groups.delete(group_id)

    # ---- cluster

    async def describe_cluster(self) -> ClusterInfo:
        found = await self._admin.describe_cluster()
        brokers = {key: Broker(key, *each.address, each.rack) for key, each in found.brokers.items()}
        return ClusterInfo(found.cluster_id, found.controller_id, brokers)

    # ---- internals

    @property
    def _open(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("the admin client is not open: use it in `async with Admin(...) as admin:`")
        return self._cluster

    @property
    def _admin(self) -> InternalAdmin:
        return InternalAdmin(self._open, timeout_s=self._timeout_s)

    @property
    def _groups(self) -> GroupAdmin:
        return GroupAdmin(self._open, timeout_s=self._timeout_s)


def _topic(found: TopicMetadata) -> Topic:
    partitions = {
        number: Partition(number, each.leader, each.replicas, each.in_sync_replicas)
        for number, each in sorted(found.partitions.items())
    }
    return Topic(found.name, found.is_internal, partitions)
