"""Three brokers as a newcomer starts them: `tidelog up`."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from bench import wire
from bench.peers import STOP_LIMIT_S, Peer, TidelogPeer
from tools.ports import free_ports

BROKERS = 3


class TidelogUp(Peer):
    name = TidelogPeer.name
    title = TidelogPeer.title
    acks = wire.ACKS_ALL

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._port = free_ports(BROKERS)
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def pids(self) -> list[int]:
        """Only of the process that looks after the brokers."""
        assert self._process is not None
        return [self._process.pid]

    @property
    def ports(self) -> list[int]:
        return [self._port + number for number in range(BROKERS)]

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        command = [sys.executable, "-m", "tidelog", "up", "--data", str(self.directory / "data")]
        command += ["--port", str(self._port)]
        self._log = (self.directory / "up.log").open("ab")
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=environment)

    def stop(self) -> None:
        if self._process is not None:
            assert self._log is not None
            self._process.send_signal(signal.SIGINT)
            self._process.wait(STOP_LIMIT_S)
            self._process = None
            self._log.close()

    def kill(self) -> None:
        """In good order: nobody else would end the brokers."""
        self.stop()

    def last_words(self) -> str:
        return (self.directory / "up.log").read_text(errors="replace")
