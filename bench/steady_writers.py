"""Producers that write one small record after the other with their client's defaults, and report what was acknowledged.

librdkafka runs in this process, the Java client and franz-go as programs of their own (`bench/steady`), which print a
line for each acknowledged record.
"""

import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from compat.foreign import CACHE, FOREIGN_CLIENTS, JavaClient, require, run

SOURCES = Path(__file__).parent / "steady"
BUILT = CACHE / "steady"
VALUE = b"x" * 100


@dataclass(frozen=True)
class Ack:
    partition: int
    sent: float
    acknowledged: float
    """Wall clock: the only one that all programs can read."""


@dataclass(frozen=True)
class Load:
    topic: str
    partitions: int
    pause_ms: float
    """Between two records; partitions take turns."""


class SteadyWriter(ABC):
    settle_s = 1.0
    """After its first record, until it is as it would be if it had been running for long."""

    def __init__(self, bootstrap: str, load: Load) -> None:
        self.acks: list[Ack] = []
        self._bootstrap = bootstrap
        self._load = load
        self._thread = threading.Thread(target=self._run, name="steady-writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._thread.join()

    @abstractmethod
    def _run(self) -> None: ...

    @abstractmethod
    def _end(self) -> None: ...


class LibrdkafkaWriter(SteadyWriter):
    def __init__(self, bootstrap: str, load: Load) -> None:
        super().__init__(bootstrap, load)
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._is_ending = threading.Event()

    def _run(self) -> None:
        for number in count():
            if self._is_ending.is_set():
                break
            sent = time.time()
            partition = number % self._load.partitions
            self._producer.produce(self._load.topic, VALUE, partition=partition, on_delivery=self._reporter(sent))
            while (left := sent + self._load.pause_ms / 1000 - time.time()) > 0:
                self._producer.poll(left)
        self._producer.purge()

    def _reporter(self, sent: float) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                partition = message.partition()
                assert partition is not None
                self.acks.append(Ack(partition, sent, time.time()))

        return report

    def _end(self) -> None:
        self._is_ending.set()


class ProgramWriter(SteadyWriter):
    """A program that prints partition and times in nanoseconds, and ends with its standard input."""

    @staticmethod
    @abstractmethod
    def command() -> list[str]: ...

    def __init__(self, bootstrap: str, load: Load) -> None:
        super().__init__(bootstrap, load)
        arguments = [bootstrap, load.topic, str(load.partitions), str(load.pause_ms)]
        self._process = subprocess.Popen(
            [*self.command(), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.acks.append(read_ack(line))

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def read_ack(line: str) -> Ack:
    partition, sent_ns, acknowledged_ns = map(int, line.split())
    return Ack(partition, sent_ns / 1e9, acknowledged_ns / 1e9)


class JavaWriter(ProgramWriter):
    @staticmethod
    def command() -> list[str]:
        client = next(each for each in FOREIGN_CLIENTS if isinstance(each, JavaClient) and each.name == "Java 4.3")
        driver = client.command()
        source, classes = SOURCES / "Steady.java", BUILT / "classes"
        built = classes / "Steady.class"
        if not built.exists() or built.stat().st_mtime < source.stat().st_mtime:
            classes.mkdir(parents=True, exist_ok=True)
            run(["javac", "-cp", f"{client.directory}/libs/*", "-d", str(classes), str(source)], BUILT)
        return [*driver[:-2], f"{classes}:{client.directory}/libs/*", "Steady"]


class FranzGoWriter(ProgramWriter):
    settle_s = 11.0  # it asks for metadata at most once in five seconds (MetadataMinAge), and twice when it begins

    @staticmethod
    def command() -> list[str]:
        require("go")
        BUILT.mkdir(parents=True, exist_ok=True)
        run(["go", "build", "-o", str(BUILT / "franz-go"), "."], SOURCES)
        return [str(BUILT / "franz-go")]


WRITERS: dict[str, type[SteadyWriter]] = {
    "librdkafka": LibrdkafkaWriter,
    "Java": JavaWriter,
    "franz-go": FranzGoWriter,
}
