"""Process faults of brokers, and clock jumps of their machines."""

import asyncio

from tidelog.simulation.cluster import DEATH_IS_NOTICED_AFTER_S, SESSION_TIMEOUT_MS
from tidelog.simulation.fault_scene import Faults, FaultScene
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.processes import Process, ProcessState
from tidelog.simulation.supervisor import BrokerState
from tidelog.simulation.swarm import MAX_SKEW_MS
from tidelog.types import BrokerId

NOTICED_AFTER_S = (DEATH_IS_NOTICED_AFTER_S, DEATH_IS_NOTICED_AFTER_S, 1.0, SESSION_TIMEOUT_MS / 1000)
MAX_JUMP_MS = 600_000


class ProcessFaults:
    """Brokers are killed, stopped and frozen; clocks jump."""

    def __init__(self, scene: FaultScene) -> None:
        self._scene = scene
        self.faults: Faults = {
            "kill": self._kill,
            "kill_all": self._kill_all,
            "stop": self._stop,
            "freeze": self._freeze,
            "kill_while_starting": self._kill_while_starting,
            "clock_jump": self._jump_clock,
        }

    def _kill(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        if self._scene.states[broker_id] is not BrokerState.DOWN:
            self._scene.log_applied(event, f"kill -9 broker {broker_id}, for {event.for_s} s")
            self._scene.kill_for(broker_id, event.for_s, _noticed_after_s(event))

    def _kill_all(self, event: FaultEvent) -> None:
        self._scene.log_applied(event, f"kill -9 all brokers, the first starts after {event.for_s} s")
        for number, (broker_id, state) in enumerate(self._scene.states.items()):
            if state is not BrokerState.DOWN:
                self._scene.kill_for(
                    broker_id, event.for_s * (1 + (number + event.detail) % 3), _noticed_after_s(event)
                )

    def _stop(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        if broker_id in self._scene.supervisor.healthy:
            self._scene.log_applied(event, f"stop broker {broker_id}, for {event.for_s} s")
            self._scene.supervisor.stop(broker_id, event.for_s)

    def _freeze(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        if broker_id in self._scene.supervisor.healthy:
            self._scene.log_applied(event, f"SIGSTOP broker {broker_id}, for {event.for_s} s")
            process = self._scene.cluster.machines[broker_id].process
            self._scene.cluster.freeze(broker_id)
            self._scene.repair_later(event, lambda: self._thaw(broker_id, process))

    def _thaw(self, broker_id: BrokerId, process: Process | None) -> None:
        if process is not None and process.state is ProcessState.STOPPED:
            self._scene.log_event(f"SIGCONT broker {broker_id}")
            self._scene.cluster.thaw(broker_id)

    def _kill_while_starting(self, event: FaultEvent) -> None:
        broker_id, after_s = self._scene.target_broker(event), event.detail % 100 / 1000
        if self._scene.states[broker_id] is not BrokerState.STOPPING:
            self._scene.log_applied(
                event, f"kill -9 broker {broker_id}, and again {after_s} s after it begins to start"
            )
            self._scene.kill_for(broker_id, 0.0)
            self._scene.supervisor.spawn(self._starting_in_vain(broker_id, after_s, event))

    async def _starting_in_vain(self, broker_id: BrokerId, after_s: float, event: FaultEvent) -> None:
        await asyncio.sleep(after_s)
        if self._scene.states[broker_id] is BrokerState.STARTING:
            self._scene.kill_for(broker_id, event.for_s, _noticed_after_s(event))

    def _jump_clock(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        jump_ms = (event.detail * 2 - 10_000) * MAX_JUMP_MS // 10_000
        self._scene.log_applied(event, f"the clock of broker {broker_id} jumps by {jump_ms} ms")
        clock = self._scene.cluster.machines[broker_id].clock
        clock.offset_ms = max(-MAX_SKEW_MS, min(clock.offset_ms + jump_ms, MAX_SKEW_MS))


def _noticed_after_s(event: FaultEvent) -> float:
    return NOTICED_AFTER_S[event.detail % len(NOTICED_AFTER_S)]
