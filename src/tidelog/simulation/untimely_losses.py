"""Disk losses at the worst time: while a write of the controller is in flight, or after all other replicas failed."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.inspection import stored_partitions
from tidelog.simulation.supervisor import Supervisor
from tidelog.types import NO_BROKER, BrokerId

MIN_STALL_S = 0.5
MAX_STALL_S = 1.0
STEP_S = 0.005
KILLED_FOR_S = 3.0


class FailureRoles(NamedTuple):
    """Brokers of a scenario; the leader is not the controller."""

    controller: BrokerId
    leader: BrokerId
    next_leader: BrokerId
    """Broker that is elected when the leader dies, and that loses its disk. It is not the controller either."""
    other: BrokerId


class UntimelyLosses:
    """`may_lose` says what I4 allows. A broker that loses its disk or power restarts at once."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        supervisor: Supervisor,
        may_lose: Callable[[BrokerId], bool],
        lose_disk: Callable[[BrokerId], None],
        lose_power: Callable[[BrokerId], None],
        log_event: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._supervisor = supervisor
        self._may_lose = may_lose
        self._lose_disk = lose_disk
        self._lose_power = lose_power
        self._log_event = log_event

    def roles(self) -> FailureRoles | None:
        node = self._cluster.store_state.find(znodes.CONTROLLER)
        if node is None:
            return None
        controller = znodes.decode_controller(node.data)
        for _, stored in stored_partitions(self._cluster.store_state):
            state = stored.state
            others = [each for each in state.replicas if each in state.in_sync_replicas and each != state.leader]
            if state.leader in (NO_BROKER, controller) or len(others) < 2 or others[0] == controller:
                continue
            if {state.leader, *others} <= self._supervisor.healthy and self._may_lose(others[0]):
                return FailureRoles(controller, state.leader, others[0], others[1])
        return None

    async def elect_late(self, roles: FailureRoles, event: FaultEvent) -> None:
        """The leader dies; its successor loses its disk and returns before the election is written, then the
        controller dies."""
        stall_s = MIN_STALL_S + event.detail % 1000 / 1000
        self._stall(stall_s, lambda: self._lose(roles.next_leader))
        self._kill(roles.leader)
        waited_s = 0.0
        while waited_s < stall_s + MAX_STALL_S and self._leads(roles.leader):
            waited_s += STEP_S
            await asyncio.sleep(STEP_S)
        self._kill(roles.controller)

    def _leads(self, broker_id: BrokerId) -> bool:
        """True if the broker leads any partition, according to the store."""
        return any(stored.state.leader == broker_id for _, stored in stored_partitions(self._cluster.store_state))

    async def lose_the_last(self, roles: FailureRoles, event: FaultEvent) -> None:
        """The other replicas die one by one; the last one loses its disk or power and returns first (KIP-966)."""
        for broker_id in (roles.leader, roles.other):
            self._kill(broker_id)
            await asyncio.sleep(event.detail % 800 / 1000)
        self._lose(roles.next_leader, is_power=event.detail % 2 == 1)

    # ---- steps

    def _stall(self, stall_s: float, on_sent: Callable[[], None]) -> None:
        """Delay the next write of the controller, which reacts to the broker that dies now."""
        store = self._cluster.store_state
        node = store.find(znodes.CONTROLLER)
        if node is not None:
            store.stall_next_write(node.owner, stall_s, on_sent)

    def _lose(self, broker_id: BrokerId, *, is_power: bool = False) -> None:
        if broker_id in self._supervisor.healthy and self._may_lose(broker_id):
            (self._lose_power if is_power else self._lose_disk)(broker_id)

    def _kill(self, broker_id: BrokerId) -> None:
        if broker_id in self._supervisor.healthy:
            self._log_event(f"kill -9 broker {broker_id}, for {KILLED_FOR_S} s")
            self._supervisor.kill(broker_id)
            self._supervisor.start_after(broker_id, KILLED_FOR_S)
