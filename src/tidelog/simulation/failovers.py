"""Failover sequences: planned faults of one partition, for states that independent faults reach too rarely."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from tidelog.cluster import znodes
from tidelog.simulation.cluster import SimulatedCluster, host_of
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.inspection import stored_partitions
from tidelog.simulation.supervisor import BrokerState, Supervisor
from tidelog.types import NO_BROKER, BrokerId

TURNS = 4
MAX_START_S = 4.0
STEP_S = 0.1
FINE_STEP_S = 0.005
SHORT_S = 0.3


class Trio(NamedTuple):
    controller: BrokerId
    leader: BrokerId
    next_leader: BrokerId
    isolated: BrokerId
    """The third replica, isolated from the controller."""


class Failovers:
    """Runs one sequence at a time, until all faults end."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        supervisor: Supervisor,
        log_event: Callable[[str], None],
        is_over: Callable[[], bool],
        response_delays_s: dict[BrokerId, float],
    ) -> None:
        """`response_delays_s`: additional delay of store responses by broker."""
        self._cluster = cluster
        self._supervisor = supervisor
        self._log_event = log_event
        self._is_over = is_over
        self._response_delays_s = response_delays_s
        self._is_busy = False

    def begin(self, row: Coroutine[Any, Any, None]) -> None:
        self._is_busy = True
        self._supervisor.spawn(self._follow(row))

    async def _follow(self, row: Coroutine[Any, Any, None]) -> None:
        try:
            await row
        finally:
            self._is_busy = False

    # ---- alternating replicas

    def pair(self, event: FaultEvent) -> tuple[BrokerId, BrokerId] | None:
        """Two replicas of some partition."""
        found = [stored.state for _, stored in stored_partitions(self._cluster.store_state)]
        if not found or self._is_busy:
            return None
        replicas = found[event.detail % len(found)].replicas
        return (replicas[0], replicas[1]) if len(replicas) > 1 else None

    async def take_turns(self, pair: tuple[BrokerId, BrokerId], event: FaultEvent) -> None:
        """The two never run together: their logs diverge over more than one epoch (KIP-279)."""
        for number in range(TURNS):
            up, down = pair[number % 2], pair[(number + 1) % 2]
            for broker_id in self._supervisor.states:
                if broker_id != up and (broker_id == down or number == 0):
                    self._kill(broker_id, TURNS * MAX_START_S)
            await self._wait_until_up(up)
            await self._sleep(SHORT_S + event.detail % 1000 / 1000)
        for broker_id in self._supervisor.states:
            self._start(broker_id)

    # ---- failovers that one replica misses

    def trio(self, *, with_controller: bool = False) -> Trio | None:
        """Replicas of a healthy partition without the controller; `with_controller`: a follower may be it."""
        node = self._cluster.store_state.find(znodes.CONTROLLER)
        controller = NO_BROKER if node is None else znodes.decode_controller(node.data)
        healthy = self._supervisor.healthy if with_controller else self._supervisor.healthy - {controller}
        for _, stored in stored_partitions(self._cluster.store_state):
            state = stored.state
            others = [each for each in state.replicas if each in state.in_sync_replicas and each != state.leader]
            others.sort(key=lambda each: each != controller)
            found = {state.leader, *others}
            if len(others) > 1 and found <= healthy and state.leader != controller and not self._is_busy:
                return Trio(controller, state.leader, others[0], others[1])
        return None

    async def fail_over_unheard(self, trio: Trio, event: FaultEvent) -> None:
        """Leadership moves away and back: the isolated replica still follows in the old epoch (KIP-320)."""
        network, controller, isolated = self._cluster.network, host_of(trio.controller), host_of(trio.isolated)
        leader, next_leader = host_of(trio.leader), host_of(trio.next_leader)
        network.cut_one_way(controller, isolated)
        network.cut(leader, next_leader)
        await self._sleep(SHORT_S + event.detail % 500 / 1000)
        network.mend(leader, next_leader)
        self._kill(trio.leader, 0.0)
        await self._wait_until_up(trio.leader)
        await self._sleep(SHORT_S + event.detail % 1000 / 1000)
        self._kill(trio.next_leader, MAX_START_S)
        await self._sleep(SHORT_S + event.for_s)
        network.mend(controller, isolated)

    # ---- ISR expansion that the leader learns of late

    async def join_late(self, trio: Trio, event: FaultEvent) -> None:
        """The store has the expanded ISR, and the follower is cut off before the leader knows it (KIP-497)."""
        network, leader, joining = self._cluster.network, host_of(trio.leader), host_of(trio.isolated)
        self._response_delays_s[trio.leader] = 1.0
        self._kill(trio.isolated, 0.0)
        await self._wait_until_up(trio.isolated)
        waited_s = 0.0
        while not self._is_in_sync(trio) and waited_s < MAX_START_S and not self._is_over():
            waited_s += FINE_STEP_S
            await asyncio.sleep(FINE_STEP_S)
        network.cut(leader, joining)
        await self._sleep(SHORT_S + event.detail % 1000 / 1000)
        network.mend(leader, joining)
        self._response_delays_s.pop(trio.leader, None)

    def _is_in_sync(self, trio: Trio) -> bool:
        return any(
            stored.state.leader == trio.leader and trio.isolated in stored.state.in_sync_replicas
            for _, stored in stored_partitions(self._cluster.store_state)
        )

    # ---- steps

    def _kill(self, broker_id: BrokerId, for_s: float) -> None:
        if self._supervisor.states[broker_id] is not BrokerState.DOWN and not self._is_over():
            self._log_event(f"kill -9 broker {broker_id}")
            self._supervisor.kill(broker_id)
            self._supervisor.start_after(broker_id, for_s)

    def _start(self, broker_id: BrokerId) -> None:
        if self._supervisor.states[broker_id] is BrokerState.DOWN:
            self._supervisor.start_after(broker_id, 0.0)

    async def _wait_until_up(self, broker_id: BrokerId) -> None:
        self._start(broker_id)
        waited_s = 0.0
        while broker_id not in self._supervisor.healthy and waited_s < MAX_START_S:
            waited_s += STEP_S
            await self._sleep(STEP_S)

    async def _sleep(self, duration_s: float) -> None:
        if not self._is_over():
            await asyncio.sleep(duration_s)
