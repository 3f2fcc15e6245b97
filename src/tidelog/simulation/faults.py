"""Fault injection for simulated clusters: applies the events of a fault schedule, and repairs what they broke."""

from collections.abc import Callable

from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.disk_faults import DiskFaults
from tidelog.simulation.failovers import Failovers
from tidelog.simulation.fault_scene import Faults, FaultScene
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.simulation.latency import Latencies
from tidelog.simulation.link_faults import LinkFaults
from tidelog.simulation.lost_disks import LostDisks
from tidelog.simulation.lost_store import LostStore
from tidelog.simulation.process_faults import ProcessFaults
from tidelog.simulation.store_faults import StoreFaults
from tidelog.simulation.supervisor import Supervisor
from tidelog.simulation.swarm import SwarmConfig


class FaultInjector:
    """Ignores events that cannot be applied, so that every subset of a schedule is valid."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        supervisor: Supervisor,
        config: SwarmConfig,
        latencies: Latencies,
        log_event: Callable[[str], None],
    ) -> None:
        scene = self._scene = FaultScene(cluster, supervisor, config, log_event)
        lost_disks = LostDisks(cluster, config, lambda: supervisor.healthy)
        of_store = StoreFaults(scene, latencies, LostStore(cluster, lambda: bool(lost_disks.lost)))
        self._failovers = Failovers(cluster, supervisor, log_event, lambda: scene.is_over, of_store.response_delays_s)
        self._faults: Faults = {
            **ProcessFaults(scene).faults,
            **LinkFaults(scene).faults,
            **of_store.faults,
            **DiskFaults(scene, lost_disks).faults,
            "turns": self._take_turns,
            "unheard_failovers": self._fail_over_unheard,
            "late_joining": self._join_late,
        }

    @property
    def applied(self) -> list[int]:
        """Numbers of the applied events."""
        return self._scene.applied

    def apply(self, event: FaultEvent) -> None:
        self._faults[event.kind](event)

    def repair_all(self) -> None:
        """End all faults now; brokers that are down start."""
        scene = self._scene
        scene.log_event("all faults end")
        scene.end()
        scene.cluster.mend()
        scene.cluster.store_state.forget_step_faults()
        scene.supervisor.recover_all()

    # ---- failover sequences

    def _take_turns(self, event: FaultEvent) -> None:
        pair = self._failovers.pair(event)
        if pair is not None:
            self._scene.log_applied(event, f"brokers {pair[0]} and {pair[1]} run alternately, and no other broker runs")
            self._failovers.begin(self._failovers.take_turns(pair, event))

    def _fail_over_unheard(self, event: FaultEvent) -> None:
        trio = self._failovers.trio()
        if trio is not None:
            self._scene.log_applied(
                event, f"broker {trio.isolated} hears nothing from the controller while leaders change"
            )
            self._failovers.begin(self._failovers.fail_over_unheard(trio, event))

    def _join_late(self, event: FaultEvent) -> None:
        trio = self._failovers.trio(with_controller=True)
        if trio is not None:
            self._scene.log_applied(event, f"broker {trio.isolated} joins, and broker {trio.leader} learns of it late")
            self._failovers.begin(self._failovers.join_late(trio, event))
