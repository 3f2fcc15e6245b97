"""Budget of lost disks: the number of brokers that may lack data at a time while I4 still guarantees every record."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import Stored, is_in_use, registered_epoch, stored_partitions
from tidelog.simulation.swarm import SwarmConfig
from tidelog.types import BrokerId


class LostDisks:
    """A broker that lost data counts until it is in sync again in all its partitions."""

    def __init__(self, cluster: SimulatedCluster, config: SwarmConfig, healthy: Callable[[], set[BrokerId]]) -> None:
        self._cluster = cluster
        self._config = config
        self._healthy = healthy
        self._lost: dict[BrokerId, int | None] = {}
        """Brokers that lost data, with their registration before the loss."""

    def may_lose(self, broker_id: BrokerId) -> bool:
        """False also while the store is rebuilt: a takeover without all directories is refused (R44)."""
        if not is_in_use(self._cluster.store_state) or self._is_only_member(broker_id):
            return False
        return len(self.lost | {broker_id}) < self._config.min_in_sync_replicas

    def _is_only_member(self, broker_id: BrokerId) -> bool:
        """True if a partition created below min ISR has only this replica: without its disk, no leader is possible."""
        return any(
            {*stored.state.in_sync_replicas, *stored.state.eligible_leader_replicas} == {broker_id}
            for _, stored in stored_partitions(self._cluster.store_state)
        )

    @property
    def lost(self) -> AbstractSet[BrokerId]:
        """Brokers that currently lack data."""
        self._lost = {each: earlier for each, earlier in self._lost.items() if not self._has_recovered(each, earlier)}
        return self._lost.keys()

    def lose(self, broker_id: BrokerId) -> None:
        earlier = self._lost.get(broker_id, registered_epoch(self._cluster.store_state, broker_id))
        self._lost[broker_id] = earlier

    def _has_recovered(self, broker_id: BrokerId, earlier: int | None) -> bool:
        epoch = registered_epoch(self._cluster.store_state, broker_id)
        if epoch is None or epoch == earlier or broker_id not in self._healthy():
            return False
        return all(
            broker_id in stored.state.in_sync_replicas and _is_of_incarnation(stored, broker_id, epoch)
            for _, stored in stored_partitions(self._cluster.store_state)
            if broker_id in stored.state.replicas
        )


def _is_of_incarnation(stored: Stored, broker_id: BrokerId, epoch: int) -> bool:
    """True if the state was written with this registration."""
    return stored.state.recorded_epoch(broker_id) in (None, epoch) and stored.modified_id > epoch
