"""Link faults between brokers, and between brokers and clients."""

import asyncio

from tidelog.runtime.memory_network import CLIENT_HOST
from tidelog.simulation.cluster import host_of
from tidelog.simulation.fault_scene import Faults, FaultScene
from tidelog.simulation.fault_schedule import FaultEvent
from tidelog.types import BrokerId

SLOW_LINK_S = 2.0


class LinkFaults:
    """Links are cut, in one direction or in both, slowed down and reset."""

    def __init__(self, scene: FaultScene) -> None:
        self._scene = scene
        self.faults: Faults = {
            "cut_link": self._cut_link,
            "one_way_cut": self._cut_one_way,
            "isolate": self._isolate,
            "isolate_and_kill": self._isolate_and_kill,
            "cut_clients": self._cut_clients,
            "slow_link": self._slow_link,
            "reset_link": self._reset_link,
        }

    def _cut_link(self, event: FaultEvent) -> None:
        one, other = host_of(self._scene.target_broker(event)), host_of(event.other)
        if one != other:
            self._scene.log_applied(event, f"cut the link between {one} and {other}, for {event.for_s} s")
            self._scene.cluster.network.cut(one, other)
            self._mend_later(event, one, other)

    def _mend_later(self, event: FaultEvent, one: str, *others: str) -> None:
        def mend() -> None:
            for other in others:
                self._scene.cluster.network.mend(one, other)

        self._scene.repair_later(event, mend)

    def _cut_one_way(self, event: FaultEvent) -> None:
        one, other = host_of(self._scene.target_broker(event)), host_of(event.other)
        if event.detail % 2:
            one, other = other, one
        if one != other:
            self._scene.log_applied(event, f"nothing that {one} sends reaches {other}, for {event.for_s} s")
            self._scene.cluster.network.cut_one_way(one, other)
            self._mend_later(event, one, other)

    def _isolate(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        self._scene.log_applied(event, f"cut broker {broker_id} off from its peers, for {event.for_s} s")
        self._scene.cluster.cut_off_from_peers(broker_id)
        others = [host_of(other) for other in self._scene.states if other != broker_id]
        self._mend_later(event, host_of(broker_id), *others)

    def _isolate_and_kill(self, event: FaultEvent) -> None:
        """Records that it appends while isolated exist on no other replica."""
        broker_id = self._scene.target_broker(event)
        if broker_id in self._scene.supervisor.healthy:
            self._isolate(event)
            self._scene.supervisor.spawn(self._killing_later(broker_id, event))

    async def _killing_later(self, broker_id: BrokerId, event: FaultEvent) -> None:
        await asyncio.sleep(event.detail % 1000 / 1000)
        if broker_id in self._scene.supervisor.healthy and not self._scene.is_over:
            self._scene.log_event(f"kill -9 broker {broker_id}, for {event.for_s} s")
            self._scene.kill_for(broker_id, event.for_s)

    def _cut_clients(self, event: FaultEvent) -> None:
        broker_id = self._scene.target_broker(event)
        self._scene.log_applied(event, f"cut broker {broker_id} off from clients, for {event.for_s} s")
        self._scene.cluster.cut_off_from_clients(broker_id)
        self._mend_later(event, host_of(broker_id), CLIENT_HOST)

    def _slow_link(self, event: FaultEvent) -> None:
        one = host_of(self._scene.target_broker(event))
        other = CLIENT_HOST if event.detail % 4 == 0 else host_of(event.other)
        if one != other:
            delay_s = SLOW_LINK_S * (event.detail % 100) / 100
            self._scene.log_applied(event, f"what {one} sends to {other} takes {delay_s} s longer, for {event.for_s} s")
            self._scene.cluster.network.slow_down(one, other, delay_s)
            self._mend_later(event, one, other)

    def _reset_link(self, event: FaultEvent) -> None:
        one = host_of(self._scene.target_broker(event))
        other = CLIENT_HOST if event.detail % 2 else host_of(event.other)
        if one != other:
            self._scene.log_applied(event, f"connections between {one} and {other} break")
            self._scene.cluster.network.reset(one, other)
