"""The budget of lost disks: how many brokers may lack data at one time so that I4 still promises every record."""

from collections.abc import Callable

from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.looking import Stored, registered_epoch, stored_partitions
from tidelog.simulation.swarm import SwarmConfig
from tidelog.types import BrokerId

LONGEST_UNNOTICED_S = 30.0


class LostDisks:
    """A broker that lost data counts until it is in sync again in every partition it hosts."""

    def __init__(self, cluster: SimulatedCluster, config: SwarmConfig, well: Callable[[], set[BrokerId]]) -> None:
        self._cluster = cluster
        self._config = config
        self._well = well
        self._lost: dict[BrokerId, int | None] = {}
        """With the registration that each had before."""
        self._lost_at_s = 0.0

    def may_lose(self, broker_id: BrokerId) -> bool:
        self._lost = {each: earlier for each, earlier in self._lost.items() if not self._has_recovered(each, earlier)}
        if len(self._lost.keys() | {broker_id}) >= self._config.min_in_sync_replicas:
            return False
        return not self._config.guards_lost_disks or (broker_id in self._well() and self._can_spare(broker_id))

    def lose(self, broker_id: BrokerId) -> None:
        earlier = self._lost.get(broker_id, registered_epoch(self._cluster.store_state, broker_id))
        self._lost[broker_id] = earlier
        self._lost_at_s = self._cluster.clock.monotonic()

    @property
    def is_to_be_noticed(self) -> bool:
        """With guards nothing else happens while a lost broker counts as in sync by what was written before."""
        if not self._config.guards_lost_disks or not self._lost:
            return False
        if self._cluster.clock.monotonic() > self._lost_at_s + LONGEST_UNNOTICED_S:
            return False
        return any(self._is_in_sync_by_earlier_states(each, earlier) for each, earlier in self._lost.items())

    def _has_recovered(self, broker_id: BrokerId, earlier: int | None) -> bool:
        epoch = registered_epoch(self._cluster.store_state, broker_id)
        if epoch is None or epoch == earlier or broker_id not in self._well():
            return False
        return all(
            broker_id in stored.state.in_sync_replicas and _is_of_incarnation(stored, broker_id, epoch)
            for _, stored in stored_partitions(self._cluster.store_state)
            if broker_id in stored.state.replicas
        )

    def _is_in_sync_by_earlier_states(self, broker_id: BrokerId, earlier: int | None) -> bool:
        epoch = registered_epoch(self._cluster.store_state, broker_id)
        is_back = epoch is not None and epoch != earlier
        return any(
            broker_id in stored.state.in_sync_replicas and not (is_back and stored.modified_id > (epoch or 0))
            for _, stored in stored_partitions(self._cluster.store_state)
        )

    def _can_spare(self, broker_id: BrokerId) -> bool:
        others = {
            each
            for each in self._well()
            if each != broker_id and registered_epoch(self._cluster.store_state, each) is not None
        }
        return all(
            others.intersection(stored.state.in_sync_replicas)
            for _, stored in stored_partitions(self._cluster.store_state)
        )


def _is_of_incarnation(stored: Stored, broker_id: BrokerId, epoch: int) -> bool:
    """Whether the state was written in the knowledge of this registration."""
    return stored.state.in_sync_epochs.get(broker_id, epoch) == epoch and stored.modified_id > epoch
