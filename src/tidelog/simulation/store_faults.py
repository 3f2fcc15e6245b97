"""Faults of the coordination store and of broker sessions."""

import asyncio

from tidelog.cluster import znodes
from tidelog.simulation.fault_scene import Faults, FaultScene
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.inspection import registered_epoch
from tidelog.simulation.latency import Latencies
from tidelog.simulation.lost_store import LostStore
from tidelog.simulation.processes import ProcessState
from tidelog.store.interface import NO_OWNER, Delete
from tidelog.store.memory import StepFaultKind
from tidelog.types import BrokerId

SLOW_STORE_S = 1.0
MAX_STALL_S = 0.5
MAX_RESPONSE_S = 0.3
STEPS_AHEAD = 6


class StoreFaults:
    """Sessions end, writes fail half-way, responses are late; controllers are deposed, and the store is lost."""

    def __init__(self, scene: FaultScene, latencies: Latencies, lost_store: LostStore) -> None:
        self._scene = scene
        self._latencies = latencies
        self._lost_store = lost_store
        self.response_delays_s: dict[BrokerId, float] = {}
        """Additional delay of store responses by broker."""
        scene.cluster.store_state.response_delay_s = self._response_delay_s
        self.faults: Faults = {
            "cut_store": self._cut_store,
            "end_session": self._end_session,
            "store_step": self._break_store_step,
            "slow_store": self._slow_store,
            "late_rejoining": self._rejoin_late,
            "depose_controller": self._depose_controller,
            "lost_store": self._lose_store,
        }

    def _session_of(self, broker_id: BrokerId) -> int | None:
        sessions, store = self._scene.cluster.machines[broker_id].sessions, self._scene.cluster.store_state
        if not sessions or sessions[-1] not in store.sessions or store.is_cut_off(sessions[-1]):
            return None
        return sessions[-1]

    def _cut_store(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        session, store = self._session_of(broker_id), self._scene.cluster.store_state
        if session is not None:
            self._scene.log_applied(event, f"cut broker {broker_id} off from the store, for {event.for_s} s")
            store.cut_off(session)
            self._scene.repair_later(event, lambda: self._reconnect(broker_id, session))

    def _reconnect(self, broker_id: BrokerId, session: int) -> None:
        process = self._scene.cluster.machines[broker_id].process
        if process is not None and process.state is ProcessState.RUNNING:  # a frozen one reconnects when it resumes
            self._scene.cluster.store_state.reconnect(session)

    def _end_session(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        session = self._session_of(broker_id)
        if session is not None:
            self._scene.log_applied(event, f"the store ends the session of broker {broker_id}")
            self._scene.cluster.store_state.expire(session)

    def _break_store_step(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        session = self._session_of(broker_id)
        if session is not None:
            kinds = list(StepFaultKind)
            kind, writes_before = kinds[event.detail % len(kinds)], event.detail // len(kinds) % STEPS_AHEAD
            label = kind.name.lower().replace("_", " ")
            self._scene.log_applied(
                event, f"store: {label} at write {writes_before + 1} from now of broker {broker_id}"
            )
            self._scene.cluster.store_state.break_step(session, kind, writes_before, event.for_s)

    def _slow_store(self, event: FaultEvent) -> None:
        delay_s = SLOW_STORE_S * (event.detail % 100) / 100
        self._scene.log_applied(event, f"the store takes {delay_s} s longer, for {event.for_s} s")
        self._latencies.store_delay_s = delay_s
        self._scene.repair_later(event, self._store_is_fast)

    def _store_is_fast(self) -> None:
        self._latencies.store_delay_s = 0.0

    def _rejoin_late(self, event: FaultEvent) -> None:
        """A broker registers again and learns of it late: others know it earlier."""
        broker_id, delay_s = self._scene.target_broker(event), MAX_RESPONSE_S * (1 + event.detail % 100) / 100
        session = self._session_of(broker_id)
        if session is not None:
            self._scene.log_applied(
                event, f"the session of broker {broker_id} ends, answers take {delay_s} s until it is back"
            )
            self._scene.supervisor.spawn(self._answer_late_until_registered(broker_id, delay_s))
            self._scene.cluster.store_state.expire(session)

    async def _answer_late_until_registered(self, broker_id: BrokerId, delay_s: float) -> None:
        self.response_delays_s[broker_id] = delay_s
        while registered_epoch(self._scene.cluster.store_state, broker_id) is None and not self._scene.is_over:  # noqa: ASYNC110
            await asyncio.sleep(delay_s)
        self.response_delays_s.pop(broker_id, None)

    def _response_delay_s(self, session_id: int) -> float:
        for broker_id, delay_s in self.response_delays_s.items():
            if session_id in self._scene.cluster.machines[broker_id].sessions[-1:]:
                return delay_s
        return 0.0

    def _depose_controller(self, event: FaultEvent) -> None:
        """Delete the controller node as an operator does: the session continues, and so does a write in flight."""
        store = self._scene.cluster.store_state
        node = store.find(znodes.CONTROLLER)
        if node is not None:
            delay_s = MAX_STALL_S * (event.detail % 100) / 100
            self._scene.log_applied(event, f"the controller is deposed while its next write takes {delay_s} s longer")
            store.stall_next_write(node.owner, delay_s, self._remove_controller)

    def _remove_controller(self) -> None:
        store = self._scene.cluster.store_state
        if store.find(znodes.CONTROLLER) is not None:
            self._scene.log_event(f"{znodes.CONTROLLER} is deleted")
            store.perform([Delete(znodes.CONTROLLER)], NO_OWNER)

    def _lose_store(self, event: FaultEvent) -> None:
        if self._lost_store.may_lose():
            self._scene.log_applied(event, "the store is lost, and an empty one is in its place")
            self._lost_store.lose()
