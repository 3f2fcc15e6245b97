"""Programs that take part in a trial, as processes that can be killed and made to stand still."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

END_LIMIT_S = 30.0


class Program:
    """`python -m MODULE ARGUMENTS...`, with what it says in a file."""

    def __init__(self, name: str, module: str, arguments: list[str], directory: Path) -> None:
        self.name = name
        self._output_file = directory / f"{name}.log"
        self.ended_at_s = 0.0
        self.killed_at_s: float | None = None
        self._is_asked_to_end = False
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=output, stderr=output)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def check(self) -> None:
        """A process that ends without being stopped is an error."""
        if not self.is_running and self.killed_at_s is None and not self._is_asked_to_end:
            raise AssertionError(f"{self.name} ended by itself:\n{self.output[-5000:]}")

    @property
    def output(self) -> str:
        return self._output_file.read_text(errors="replace")

    def stand_still(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As a crash would; nothing happens to one that has ended."""
        if self.is_running:
            self._process.kill()
            self._process.wait()
            self.ended_at_s = self.killed_at_s = time.monotonic()

    def ask_to_end(self) -> None:
        self._is_asked_to_end = True
        self._process.send_signal(signal.SIGTERM)

    def wait_until_ended(self) -> None:
        """In order, and soon."""
        try:
            code = self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} does not end:\n{self.output[-5000:]}") from None
        self.ended_at_s = time.monotonic()
        assert code == 0, f"{self.name} ended with {code}:\n{self.output[-5000:]}"
