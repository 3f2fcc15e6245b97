"""Shared state of fault injection: the cluster, the targets of faults, and pending repairs."""

import asyncio
from collections.abc import Callable, Mapping

from tidelog.cluster import znodes
from tidelog.simulation.cluster import DEATH_IS_NOTICED_AFTER_S, SimulatedCluster
from tidelog.simulation.fault_schedule import CONTROLLER, LEADER, FaultEvent
from tidelog.simulation.inspection import stored_partitions
from tidelog.simulation.supervisor import Supervisor
from tidelog.simulation.swarm import SwarmConfig
from tidelog.types import NO_BROKER, BrokerId

Faults = Mapping[str, Callable[[FaultEvent], None]]
"""Faults of one family by name."""


class FaultScene:
    def __init__(
        self, cluster: SimulatedCluster, supervisor: Supervisor, config: SwarmConfig, log_event: Callable[[str], None]
    ) -> None:
        self.cluster = cluster
        self.supervisor = supervisor
        self.states = supervisor.states
        self.config = config
        self.log_event = log_event
        self._repairs: dict[int, Callable[[], None]] = {}
        self.is_over = False
        self.applied: list[int] = []

    def end(self) -> None:
        """Run all pending repairs now."""
        self.is_over = True
        repairs, self._repairs = self._repairs, {}
        for repair in repairs.values():
            repair()

    def target_broker(self, event: FaultEvent) -> BrokerId:
        match event.who:
            case found if found == LEADER:
                found = next((each.state.leader for _, each in stored_partitions(self.cluster.store_state)), NO_BROKER)
            case found if found == CONTROLLER:
                node = self.cluster.store_state.find(znodes.CONTROLLER)
                found = NO_BROKER if node is None else znodes.decode_controller(node.data)
        return found if found in self.states else event.other

    def log_applied(self, event: FaultEvent, what: str) -> None:
        self.applied.append(event.number)
        self.log_event(f"[{event.number}] {what}")

    def repair_later(self, event: FaultEvent, repair: Callable[[], None]) -> None:
        self._repairs[event.number] = repair
        self.supervisor.spawn(self._repairing(event))

    async def _repairing(self, event: FaultEvent) -> None:
        await asyncio.sleep(event.for_s)
        repair = self._repairs.pop(event.number, None)
        if repair is not None:
            repair()

    def kill_for(self, broker_id: BrokerId, for_s: float, noticed_after_s: float = DEATH_IS_NOTICED_AFTER_S) -> None:
        self.supervisor.kill(broker_id, noticed_after_s)
        self.supervisor.start_after(broker_id, for_s)
