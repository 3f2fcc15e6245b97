"""The coordinators of one broker, for groups and for transactions: how their parts are wired together."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from tidelog.cluster.image import ClusterImage
from tidelog.replicated.machine import StateMachine
from tidelog.replicated.topic import ReplicatedTopic
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.purgatory import Purgatory
from tidelog.server.cluster_state import ClusterState
from tidelog.server.internal_topics import GROUP_TOPIC, InternalTopics
from tidelog.server.seams import Seams

if TYPE_CHECKING:
    from tidelog.groups.coordinator import GroupCoordinator

M = TypeVar("M", bound=StateMachine)


class Coordinators:
    def __init__(
        self,
        *,
        seams: Seams,
        cluster: ClusterState,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        internal_topics: InternalTopics,
        is_fenced: Callable[[], bool],
    ) -> None:
        self._seams = seams
        self._cluster = cluster
        self._replicas = replicas
        self._purgatory = purgatory
        self._internal_topics = internal_topics
        self._is_fenced = is_fenced
        self._topics = cluster.image.topics
        try:
            self.groups = self._make_groups()
        except ImportError:  # not all parts are there yet
            self.groups = None  # type: ignore[assignment]
        cluster.on_image.append(self._on_image)

    def _make_groups(self) -> "GroupCoordinator":
        from tidelog.groups.coordinator import GroupCoordinator, group_machines

        make = group_machines(
            settings=lambda: self._cluster.settings,
            image=lambda: self._cluster.image,
            randomness=self._seams.randomness,
        )
        return GroupCoordinator(self._replicated(GROUP_TOPIC, make))

    def _replicated(self, name: str, make: Callable[[int], M]) -> ReplicatedTopic[M]:
        return ReplicatedTopic(
            name,
            self._replicas,
            self._seams.clock,
            make,
            partition_count=lambda: self._internal_topics.partition_count(name),
            commit_timeout_ms=lambda: self._cluster.settings.offsets_commit_timeout_ms,
            purgatory=self._purgatory,
            workers=self._seams.workers,
            is_fenced=self._is_fenced,
        )

    def _on_image(self, image: ClusterImage) -> None:
        earlier, self._topics = self._topics, image.topics
        if image.topics is earlier:
            return
        deleted = {name: topic.topic_id for name, topic in earlier.items() if topic.topic_id not in image.topic_names}
        if deleted and self.groups is not None:
            self.groups.on_topics_deleted(deleted)

    async def close(self) -> None:
        """Whoever still waits is told to look for another coordinator."""
        await self._internal_topics.close()
        if self.groups is not None:
            await self.groups.topic.close()
