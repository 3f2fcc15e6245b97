"""The broker that the clients talk to: Tidelog as a process of its own, or Apache Kafka to try the tests themselves."""

import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from tools.apache_kafka import ApacheKafka, free_port

START_LIMIT_SECONDS = 30.0
STOP_LIMIT_SECONDS = 30.0


class BrokerProcess(ABC):
    """A broker that can be stopped, killed and started again on its port and its data."""

    bootstrap: str
    log_dir: Path | None = None

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Asks it to end, and expects it to end well."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it as a crash would; nothing happens where it does not run."""


class TidelogProcess(BrokerProcess):
    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.log_dir = directory / "data"
        self._output_file = directory / "broker.log"
        self._settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.log_dir),
        } | dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tidelog", "broker"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        seen = len(self.output())
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + START_LIMIT_SECONDS
        while not re.search(r"listening on", self.output()[seen:]):
            assert self._process.poll() is None, f"the broker ended while starting:\n{self.output()}"
            assert time.monotonic() < deadline, f"the broker does not listen:\n{self.output()}"
            time.sleep(0.01)

    def output(self) -> str:
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop:\n{self.output()}") from None
        self._process = None
        assert code == 0, f"the broker stopped with exit code {code}:\n{self.output()}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class ApacheKafkaProcess(BrokerProcess):
    def __init__(self, version: str, directory: Path) -> None:
        # A killed broker is let in again when its old session has ended: by default after nine seconds.
        settings = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
        self._kafka = ApacheKafka(version, 0, directory, "512m", settings)
        self.bootstrap = self._kafka.bootstrap
        self.log_dir = self._kafka.log_dir

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()


class ForeignBroker(BrokerProcess):
    """A broker that somebody else runs: it is left alone."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...


def new_broker(directory: Path) -> BrokerProcess:
    """Tidelog, unless TIDELOG_TEST_BOOTSTRAP names a running broker or TIDELOG_TEST_APACHE_KAFKA a version to run."""
    if bootstrap := os.environ.get("TIDELOG_TEST_BOOTSTRAP"):
        return ForeignBroker(bootstrap)
    if version := os.environ.get("TIDELOG_TEST_APACHE_KAFKA"):
        return ApacheKafkaProcess(version, directory)
    return TidelogProcess(directory)
