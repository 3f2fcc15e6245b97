"""Group coordinator and transaction coordinator of one broker, with their wiring."""

from collections.abc import Callable
from typing import TypeVar

from tidelog.client.network.broker_links import BrokerLinks
from tidelog.cluster.image import ClusterImage
from tidelog.cluster.topic_names import GROUP_TOPIC, TRANSACTION_TOPIC
from tidelog.groups.coordinator import GroupCoordinator, group_machines
from tidelog.groups.statistics import GroupCounts
from tidelog.replicated.machine import StateMachine
from tidelog.replicated.topic import ReplicatedTopic
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.purgatory import Purgatory
from tidelog.server.cluster_state import ClusterState
from tidelog.server.internal_topics import InternalTopics
from tidelog.server.membership import Membership
from tidelog.server.seams import Seams
from tidelog.transactions.coordinator import TransactionCoordinator
from tidelog.transactions.machine import TransactionMachine
from tidelog.transactions.markers import MarkerSender
from tidelog.transactions.verifier import TransactionVerifier

M = TypeVar("M", bound=StateMachine)


class Coordinators:
    def __init__(
        self,
        *,
        seams: Seams,
        cluster: ClusterState,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        membership: Membership,
        internal_topics: InternalTopics,
        links: BrokerLinks,
    ) -> None:
        self._seams = seams
        self._cluster = cluster
        self._replicas = replicas
        self._purgatory = purgatory
        self._membership = membership
        self._internal_topics = internal_topics
        self._links = links
        self._topics = cluster.image.topics
        self.markers = MarkerSender(
            links, seams.clock, lambda: cluster.image, lambda: (membership.broker.id, membership.broker_epoch)
        )
        self.verifier = TransactionVerifier(links, seams.clock, lambda: cluster.image, lambda: cluster.settings)
        self.groups = self._make_groups()
        self.transactions = self._make_transactions()
        cluster.on_image += [self.markers.on_image, self._on_image]

    def _make_groups(self) -> GroupCoordinator:
        counts = GroupCounts()
        make = group_machines(
            settings=lambda: self._cluster.settings,
            image=lambda: self._cluster.image,
            randomness=self._seams.randomness,
            counts=counts,
        )
        return GroupCoordinator(self._replicated(GROUP_TOPIC, make), counts)

    def _make_transactions(self) -> TransactionCoordinator:
        def make_topic(make: Callable[[int], TransactionMachine]) -> ReplicatedTopic[TransactionMachine]:
            return self._replicated(TRANSACTION_TOPIC, make)

        return TransactionCoordinator(
            make_topic,
            markers=self.markers,
            producer_ids=_ProducerIds(self._membership),
            settings=lambda: self._cluster.settings,
        )

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
        )

    def _on_image(self, image: ClusterImage) -> None:
        """Delete committed offsets of deleted topics."""
        earlier, self._topics = self._topics, image.topics
        if image.topics is earlier:
            return
        deleted = {name: topic.topic_id for name, topic in earlier.items() if topic.topic_id not in image.topic_names}
        if deleted:
            self.groups.on_topics_deleted(deleted)

    async def close(self) -> None:
        """Pending requests are answered with NOT_COORDINATOR."""
        await self._internal_topics.close()
        await self.groups.topic.close()
        await self.transactions.close()
        await self.markers.close()
        await self.verifier.close()
        self._links.close()


class _ProducerIds:
    """Producer ids of the current session: each session takes its own blocks."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    async def ensure(self) -> None:
        await self._membership.producer_ids.ensure()

    def take(self) -> int:
        return self._membership.producer_ids.take()
