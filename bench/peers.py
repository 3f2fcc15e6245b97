"""The brokers that the benchmark compares, behind one interface."""

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, ClassVar, Self

from bench import probes, wire
from tools.apache_kafka import KAFKA_4, ApacheKafka, free_port

START_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
FIRST_TOPIC = "first"


class BrokerFailed(Exception):
    """A broker did not start or stop; the message ends with its last words."""


class Peer(ABC):
    """A broker or a cluster of some, in a directory of its own; it can be started again on what it stored."""

    name: ClassVar[str]
    title: ClassVar[str]
    acks: ClassVar[int] = wire.ACKS_LEADER
    """What its producers ask for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    @abstractmethod
    def pids(self) -> list[int]: ...

    @property
    @abstractmethod
    def ports(self) -> list[int]: ...

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @abstractmethod
    def prepare(self) -> None:
        """Does what a user does once, before the first start."""

    @abstractmethod
    def launch(self) -> None:
        """Executes the broker and returns at once."""

    @abstractmethod
    def stop(self) -> None:
        """Ends it gracefully and waits for its end."""

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def last_words(self) -> str: ...

    def start(self) -> float:
        """Starts it; seconds from the exec to the first acknowledged produce."""
        self.prepare()
        started = time.monotonic()
        self.launch()
        try:
            deadline = started + START_LIMIT_S
            probes.wait_for_first_acknowledged_produce(self.ports, FIRST_TOPIC, self.acks, deadline)
        except TimeoutError as error:
            self.kill()
            raise BrokerFailed(f"{self.title} did not start:\n{self.last_words()}") from error
        return time.monotonic() - started

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class TidelogPeer(Peer):
    name = "tidelog"
    title = "Tidelog"
    program: ClassVar[tuple[str, ...]] = ("-m", "tidelog")
    """What Python runs."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._settings = dict(settings or {})
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]

    @property
    def ports(self) -> list[int]:
        return [self._port]

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        settings = {
            "log.dirs": str(self.directory / "logs"),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
        } | self._settings
        command = [sys.executable, *self.program, "broker"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self._log = (self.directory / "server.log").open("ab")
        # As for anybody who installed it: Python keeps what it compiled.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(STOP_LIMIT_S)
        self._reap()
        if code != 0:
            raise BrokerFailed(f"{self.title} ended with {code}:\n{self.last_words()}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        assert self._log is not None
        self._process.wait()
        self._process = None
        self._log.close()

    def last_words(self) -> str:
        return "\n".join((self.directory / "server.log").read_text(errors="replace").splitlines()[-25:])


class _ImpatientKafka(ApacheKafka):
    def is_answering(self) -> bool:
        """The benchmark waits itself, with the same probe for every peer."""
        return True


class KafkaPeer(Peer):
    name = "kafka"
    title = f"Apache Kafka {KAFKA_4}"

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        broker_id: int = 1,
        controller_port: int = 0,
        cluster_id: str = "",
    ) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._kafka = _ImpatientKafka(
            KAFKA_4,
            free_port(),
            directory,
            "1g",
            settings,
            broker_id=broker_id,
            controller_port=controller_port,
            cluster_id=cluster_id,
        )

    @property
    def pids(self) -> list[int]:
        return [self._kafka.pid]

    @property
    def ports(self) -> list[int]:
        return [self._kafka.port]

    def prepare(self) -> None:
        self._kafka.prepare()

    def launch(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    def last_words(self) -> str:
        return self._kafka.last_words()


Peers = Mapping[str, Callable[[Path], Peer]]
"""By their names: how to make one in a directory."""

ONE_BROKER: Peers = {TidelogPeer.name: TidelogPeer, KafkaPeer.name: KafkaPeer}
TITLES = {peer.name: peer.title for peer in (TidelogPeer, KafkaPeer)}
