"""Brokers as processes of their own, three by default; roads to each other and the store can be cut."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.processes.coordination import Coordination
from tests.processes.roads import HOST, Roads
from tidelog.cluster import znodes

BROKERS = (1, 2, 3)
LAG_TIME_MAX_MS = 2000
TIMEOUT_S = 120.0
POLL_S = 0.02
END_OF_GREETING = "Stop it with"


def wait_for(what: Callable[[], bool], describe: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline, describe()
        time.sleep(POLL_S)


class PartitionState(NamedTuple):
    """As it stands in the store."""

    leader: int
    leader_epoch: int
    in_sync: frozenset[int]


class BrokerProcess:
    def __init__(self, broker_id: int, directory: Path, settings: dict[str, str]) -> None:
        self.broker_id = broker_id
        self.log_dir = directory / f"broker-{broker_id}"
        self._output_file = directory / f"broker-{broker_id}.log"
        self._settings = {"broker.id": str(broker_id), "log.dirs": str(self.log_dir)} | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._greetings_seen = 0

    @property
    def pid(self) -> int:
        assert self._process is not None, f"broker {self.broker_id} does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def output(self) -> str:
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    def start(self) -> None:
        self._greetings_seen = self.output.count(END_OF_GREETING)
        command = [sys.executable, "-m", "tidelog", "broker"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)

    def wait_until_ready(self) -> None:
        wait_for(self._is_ready, lambda: f"broker {self.broker_id} does not get ready:\n{self.output[-5000:]}")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"broker {self.broker_id} ended:\n{self.output[-5000:]}"
        return self.output.count(END_OF_GREETING) > self._greetings_seen

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        assert self._process is not None
        code = self._process.wait(TIMEOUT_S)
        self._process = None
        assert code == 0, f"broker {self.broker_id} stopped with {code}:\n{self.output[-5000:]}"


class Cluster:
    def __init__(
        self, directory: Path, coordination: Coordination, first_port: int, broker_ids: Sequence[int] = BROKERS
    ) -> None:
        self.coordination = coordination
        self.roads = Roads(lambda: {each.broker_id: each.pid for each in self.brokers.values() if each.is_running})
        self._ports = {broker_id: first_port + 2 * number for number, broker_id in enumerate(broker_ids)}
        self.brokers = {
            broker_id: BrokerProcess(broker_id, directory, self._settings(broker_id)) for broker_id in broker_ids
        }

    def _settings(self, broker_id: int) -> dict[str, str]:
        """Clients come straight to a broker, other brokers by a road."""
        client_port, broker_port = self._ports[broker_id], self._ports[broker_id] + 1
        road = self.roads.to_broker(broker_id, broker_port)
        return {
            "listeners": f"CLIENTS://{HOST}:{client_port},BROKERS://{HOST}:{broker_port}",
            "advertised.listeners": f"CLIENTS://{HOST}:{client_port},BROKERS://{HOST}:{road}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "replica.lag.time.max.ms": str(LAG_TIME_MAX_MS),
            "replica.socket.timeout.ms": "2000",
            "auto.create.topics.enable": "false",
            **self.coordination.settings(broker_id, self.roads),
        }

    def address(self, broker_id: int) -> str:
        return f"{HOST}:{self._ports[broker_id]}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, self.brokers))

    # -- processes

    def start(self, broker_ids: Iterable[int] | None = None) -> None:
        """All of them by default."""
        started = [self.brokers[broker_id] for broker_id in (self.brokers if broker_ids is None else broker_ids)]
        for broker in started:
            broker.start()
        for broker in started:
            broker.wait_until_ready()

    def stop(self) -> None:
        """One after the other: the last ones find nobody who could take over."""
        for broker in self.brokers.values():
            broker.ask_to_stop()
        for broker in self.brokers.values():
            broker.wait_until_stopped()

    def close(self) -> None:
        """Leaves no process behind, whatever the test did."""
        for broker in self.brokers.values():
            broker.kill()
        self.roads.close()
        self.coordination.close()

    def pause(self, broker_id: int) -> None:
        """Stop it outside of a write to the store: within one, the others would continue it."""
        broker = self.brokers[broker_id]
        broker.pause()
        while self.coordination.is_locked_by(broker.pid):
            broker.wake()
            time.sleep(POLL_S)
            broker.pause()

    # -- what the store says

    @property
    def controller(self) -> int | None:
        found = self.coordination.read(znodes.CONTROLLER)
        return None if found is None else int(found["brokerid"])

    def is_registered(self, broker_id: int) -> bool:
        return self.coordination.read(znodes.broker_path(broker_id)) is not None

    def state(self, topic: str, partition: int) -> PartitionState:
        found = self.coordination.read(znodes.state_path(topic, partition))
        assert found is not None, f"{topic}-{partition} has no state"
        return PartitionState(found["leader"], found["leader_epoch"], frozenset(found["isr"]))

    def wait_for_state(
        self, topic: str, partition: int, what: Callable[[PartitionState], bool], timeout_s: float = TIMEOUT_S
    ) -> PartitionState:
        wait_for(lambda: what(self.state(topic, partition)), lambda: self._description(topic, partition), timeout_s)
        return self.state(topic, partition)

    def _description(self, topic: str, partition: int) -> str:
        """The state, and what each broker said last."""
        ends = [f"broker {each.broker_id}:\n{each.output[-3000:]}" for each in self.brokers.values()]
        return "\n".join([f"{topic}-{partition}: {self.state(topic, partition)}", *ends])
