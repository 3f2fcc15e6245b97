"""Faults of brokers, of their connections to the coordination store, and of their disks."""

from tidelog.testing.disks import set_full
from tidelog.testing.machines import Machines
from tidelog.types import BrokerId


class MachineFaults:
    """Methods run on the cluster's event loop."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def pause(self, broker_id: BrokerId) -> None:
        """SIGSTOP: connections stay and nobody answers; the session with the store runs out."""
        machine = self._machines.machines[broker_id]
        assert machine.process is not None
        machine.is_paused = True
        machine.process.pause()
        self._machines.wiring.pause(broker_id)
        self.cut_off_from_store(broker_id)

    def resume(self, broker_id: BrokerId) -> None:
        """SIGCONT"""
        machine = self._machines.machines[broker_id]
        assert machine.process is not None
        machine.is_paused = False
        machine.process.resume()
        self._machines.wiring.resume(broker_id)
        self.reconnect_to_store(broker_id)

    def is_paused(self, broker_id: BrokerId) -> bool:
        return self._machines.machines[broker_id].is_paused

    def cut_off_from_store(self, broker_id: BrokerId) -> None:
        sessions = self._machines.machines[broker_id].sessions
        if sessions:
            self._machines.store_state.cut_off(sessions[-1])

    def reconnect_to_store(self, broker_id: BrokerId) -> None:
        """A paused broker is not reconnected before it goes on."""
        machine = self._machines.machines[broker_id]
        if machine.sessions and not machine.is_paused:
            self._machines.store_state.reconnect(machine.sessions[-1])

    def slow_disk(self, broker_id: BrokerId, delay_s: float) -> None:
        self._machines.machines[broker_id].set_disk_delay(delay_s)

    def fill_disk(self, broker_id: BrokerId) -> None:
        set_full(self._machines.machines[broker_id].disk, is_full=True)

    def repair_disk(self, broker_id: BrokerId) -> None:
        """Neither full nor slow."""
        set_full(self._machines.machines[broker_id].disk, is_full=False)
        self.slow_disk(broker_id, 0.0)

    def lose_disk(self, broker_id: BrokerId) -> None:
        """The broker dies with its disk; the next start finds an empty one."""
        machine = self._machines.machines[broker_id]
        if machine.process is not None:
            self._machines.kill(broker_id)
        self._machines.replace_disk(machine)
