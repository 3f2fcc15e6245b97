"""The broker that the clients talk to: Tidelog as a process of its own, or Apache Kafka to try the tests themselves."""

import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidelog.config.broker import RACK_AWARE_SELECTOR
from tools.apache_kafka import ApacheKafka, free_port

START_LIMIT_S = 90.0
STOP_LIMIT_S = 120.0
BROKER_IDS = (1, 2, 3)


class BrokerProcess(ABC):
    """A broker that can be stopped, killed and started again on its port and its data."""

    bootstrap: str
    log_dirs: Sequence[Path] = ()
    broker_count = 1

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Asks it to end, and expects it to end well."""

    @abstractmethod
    def kill(self) -> None:
        """Ends it as a crash would; nothing happens where it does not run."""


@contextmanager
def running(process: BrokerProcess) -> Iterator[BrokerProcess]:
    """Started, and at the end stopped in order if all went well, killed if not."""
    process.start()
    try:
        yield process
        process.stop()
    finally:
        process.kill()


class TidelogProcess(BrokerProcess):
    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, port: int = 0) -> None:
        self.bootstrap = f"127.0.0.1:{port or free_port()}"
        self._output_file = directory / "broker.log"
        self._settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(directory / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "300",
        } | dict(settings or {})
        self.log_dirs = tuple(Path(log_dir) for log_dir in self._settings["log.dirs"].split(","))
        self.module = "tidelog"
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._output_seen = 0

    def start(self) -> None:
        self.launch()
        self.wait_until_it_listens()

    def launch(self) -> None:
        command = [sys.executable, "-m", self.module, "broker"]
        for key, value in self._settings.items():
            command += ["--set", f"{key}={value}"]
        self._output_seen = len(self.output())
        self._output_file.parent.mkdir(parents=True, exist_ok=True)
        with self._output_file.open("ab") as output:
            environment = os.environ | self.environment
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def wait_until_it_listens(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while not re.search(r"listening on", self.output()[self._output_seen :]):
            assert self._process.poll() is None, f"the broker ended while starting:\n{self.output()}"
            assert time.monotonic() < deadline, (
                f"the broker does not listen:\n{self.output()[self._output_seen :][-2000:]}"
            )
            time.sleep(0.01)

    def output(self) -> str:
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        self.ask_to_stop()
        self.wait_until_stopped()

    def ask_to_stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait_until_stopped(self) -> None:
        assert self._process is not None
        try:
            code = self._process.wait(STOP_LIMIT_S)
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


def log_dirs(directory: Path, count: int) -> list[Path]:
    return [directory / name for name in ("data", *(f"data-{number}" for number in range(2, count + 1)))]


class TidelogCluster(BrokerProcess):
    """Three brokers, each in its own rack; every topic has three replicas, unless its creator says otherwise."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, *, disks: int = 1) -> None:
        common = {
            "coordination.store": str(directory / "coordination.sqlite"),
            "default.replication.factor": str(len(BROKER_IDS)),
            "replica.selector.class": RACK_AWARE_SELECTOR,
        } | dict(settings or {})
        self.metrics = {broker_id: f"127.0.0.1:{free_port()}" for broker_id in BROKER_IDS}
        self.brokers = {
            broker_id: TidelogProcess(
                directory / f"broker-{broker_id}",
                {
                    "broker.id": str(broker_id),
                    "broker.rack": self.rack(broker_id),
                    "metrics.listener": self.metrics[broker_id],
                    "log.dirs": ",".join(map(str, log_dirs(directory / f"broker-{broker_id}", disks))),
                }
                | common,
            )
            for broker_id in BROKER_IDS
        }
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())
        self.log_dirs = [log_dir for broker in self.brokers.values() for log_dir in broker.log_dirs]
        self.broker_count = len(BROKER_IDS)

    @staticmethod
    def rack(broker_id: int) -> str:
        return f"rack-{broker_id}"

    def start(self) -> None:
        self.start_brokers(self.brokers)

    def start_brokers(self, broker_ids: Iterable[int]) -> None:
        started = [self.brokers[broker_id] for broker_id in broker_ids]
        for broker in started:
            broker.launch()
        for broker in started:
            broker.wait_until_it_listens()

    def stop(self) -> None:
        running = [broker for broker in self.brokers.values() if broker.is_running]
        for broker in running:
            broker.ask_to_stop()
        for broker in running:
            broker.wait_until_stopped()

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


class ApacheKafkaProcess(BrokerProcess):
    def __init__(self, version: str, directory: Path) -> None:
        # A killed broker is let in again when its old session has ended: by default after nine seconds.
        settings = {
            "broker.session.timeout.ms": "1000",
            "broker.heartbeat.interval.ms": "200",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "300",
        }
        self._kafka = ApacheKafka(version, 0, directory, "512m", settings)
        self.bootstrap = self._kafka.bootstrap
        self.log_dirs = (self._kafka.log_dir,)

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
