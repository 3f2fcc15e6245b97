"""Faults of a test cluster by name, as a test calls them."""

from abc import ABC, abstractmethod
from typing import Any, Literal, TypeAlias

from tidelog.testing.host import ClusterError
from tidelog.testing.links import CLIENTS

OtherEnd: TypeAlias = "int | Literal['clients', 'store'] | None"


class FaultControls(ABC):
    """Brokers are killed, paused and resumed; connections are cut; disks are slow, full or lost."""

    def __init__(self, brokers: int) -> None:
        self.brokers = brokers

    @abstractmethod
    def _call(self, name: str, *arguments: Any, **named: Any) -> Any: ...

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        found: list[int] = self._call("machines.running")
        return found

    # ---- brokers

    def kill(self, broker_id: int) -> None:
        """End a broker as `kill -9` does. The others notice at once."""
        self._check(broker_id, is_running=True)
        self._call("machines.kill", broker_id)

    def stop(self, broker_id: int) -> None:
        """Stop a broker by a controlled shutdown: its leaders move to other brokers first."""
        self._check(broker_id, is_running=True)
        self._call("machines.stop", broker_id)

    def start(self, broker_id: int) -> None:
        """Start a killed or stopped broker again, with its records, on its address."""
        self._check(broker_id, is_running=False)
        self._call("machines.start", [broker_id])

    def restart(self, broker_id: int) -> None:
        """Stop and start."""
        self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Stop a broker as SIGSTOP does: its connections stay, and nobody answers.

        The others replace it when its session has run out: wait, or `kafka.clock.advance(seconds=10)`.
        """
        self._check(broker_id, is_running=True)
        if self._call("faults.is_paused", broker_id):
            raise ClusterError(f"broker {broker_id} is paused already")
        self._call("faults.pause", broker_id)

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker."""
        self._check(broker_id, is_running=True)
        if not self._call("faults.is_paused", broker_id):
            raise ClusterError(f"broker {broker_id} is not paused")
        self._call("faults.resume", broker_id)

    # ---- connections

    def cut(self, broker_id: int, other: OtherEnd = None) -> None:
        """Lose everything that is sent between a broker and another one, all clients, or the coordination store.

        Without `other`: between the broker and all of them. Connections stay open; requests run into their time-outs.
        """
        self._check_exists(broker_id)
        for peer in self._peers(broker_id, other):
            self._call("wiring.cut", broker_id, peer)
        if other in (None, "store"):
            self._call("faults.cut_off_from_store", broker_id)

    def heal(self, broker_id: int | None = None, other: OtherEnd = None) -> None:
        """Undo `cut` with the same arguments; without arguments all cuts. What was sent meanwhile arrives."""
        brokers = range(1, self.brokers + 1) if broker_id is None else [broker_id]
        for each in brokers:
            self._check_exists(each)
            for peer in self._peers(each, other):
                self._call("wiring.heal", each, peer)
            if other in (None, "store"):
                self._call("faults.reconnect_to_store", each)

    def _peers(self, broker_id: int, other: "int | str | None") -> list[int]:
        if other is None:
            return [CLIENTS, *(each for each in range(1, self.brokers + 1) if each != broker_id)]
        if isinstance(other, int):
            self._check_exists(other)
            if other == broker_id:
                raise ClusterError(f"broker {broker_id} cannot be cut off from itself")
            return [other]
        if other not in ("clients", "store"):
            raise ClusterError(f"other= is the id of a broker, 'clients' or 'store', not {other!r}")
        return [CLIENTS] if other == "clients" else []

    # ---- disks

    def slow_disk(self, broker_id: int, seconds: float) -> None:
        """Everything that reads or writes records on this broker takes `seconds` longer; 0: as before."""
        self._check_exists(broker_id)
        self._call("faults.slow_disk", broker_id, seconds)

    def fill_disk(self, broker_id: int) -> None:
        """No more bytes fit. As in Kafka, the broker ends at its next write; `repair_disk`, then `start`."""
        self._check_exists(broker_id)
        self._call("faults.fill_disk", broker_id)

    def repair_disk(self, broker_id: int) -> None:
        """A disk that is neither full nor slow."""
        self._check_exists(broker_id)
        self._call("faults.repair_disk", broker_id)

    def lose_disk(self, broker_id: int) -> None:
        """The broker dies, and all its records are gone. `start` starts it with an empty disk."""
        self._check_exists(broker_id)
        self._call("faults.lose_disk", broker_id)

    # ---- internals

    def _check_exists(self, broker_id: int) -> None:
        if not 1 <= broker_id <= self.brokers:
            raise ClusterError(f"there is no broker {broker_id!r}; the brokers are 1 to {self.brokers}")

    def _check(self, broker_id: int, *, is_running: bool) -> None:
        self._check_exists(broker_id)
        if (broker_id in self.running) != is_running:
            raise ClusterError(f"broker {broker_id} {'does not run' if is_running else 'runs already'}")
