"""Kafka Streams, exactly once: an application with a state store, of two instances, one of which is killed."""

import random
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer

from tests.clients.broker import BrokerProcess, TidelogCluster, running
from tests.clients.confluent_driver import ConfluentDriver
from tests.clients.driver import ProducerOptions, Record, wait_until
from tools.apache_kafka import REPOSITORY, fetch_artefacts, require_java

SOURCE = Path(__file__).resolve().parent / "java" / "CountingStream.java"
CACHE = REPOSITORY / ".cache" / "kafka-streams"
WORDS, COUNTS = "words", "counts"
APPLICATION = "counting"
PARTITIONS = 3
LINES = 300
"""Of each of the three times that lines are written."""
TIMEOUT_S = 60.0
SETTINGS = {
    "application.id": APPLICATION,
    "processing.guarantee": "exactly_once_v2",
    "replication.factor": "-1",
    "num.stream.threads": "2",
    "statestore.cache.max.bytes": "0",  # so that each count is written
    "consumer.auto.offset.reset": "earliest",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "500",
    "producer.transaction.timeout.ms": "6000",
}
FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def libraries(version: str) -> Path:
    """The jars of Kafka Streams, fetched on first use."""
    require_java()
    directory = CACHE / version / "libs"
    if not directory.is_dir():
        wanted = [("org.apache.kafka", "kafka-streams", version), ("org.slf4j", "slf4j-nop", "1.7.36")]
        fetch_artefacts(f"Kafka Streams {version}", wanted, directory)
    return directory


class Instances:
    def __init__(self, version: str, bootstrap: str, directory: Path) -> None:
        self._class_path = f"{libraries(version)}/*"
        self._bootstrap = bootstrap
        self._directory = directory
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        settings = SETTINGS | {"bootstrap.servers": self._bootstrap, "state.dir": str(self._directory / name)}
        command = ["java", *FLAGS, "-cp", self._class_path, str(SOURCE), WORDS, COUNTS]
        command += [f"{key}={value}" for key, value in settings.items()]
        self._processes[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)


@contextmanager
def instances(version: str, bootstrap: str, directory: Path) -> Iterator[Instances]:
    found = Instances(version, bootstrap, directory)
    try:
        yield found
    finally:
        found.close()


class Counting:
    """Writes lines of words, and reads what the application has counted."""

    def __init__(self, bootstrap: str) -> None:
        self._driver = ConfluentDriver(bootstrap)
        for topic in (WORDS, COUNTS):
            self._driver.create_topic(topic, PARTITIONS, {})
        self._randomness = random.Random(1)
        self._written: Counter[str] = Counter()
        self.counts: dict[str, list[int]] = defaultdict(list)
        self._reader = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
        )
        self._reader.subscribe([COUNTS])

    def write(self) -> None:
        lines = [" ".join(f"word-{self._randomness.randrange(30)}" for _ in range(3)) for _ in range(LINES)]
        self._written.update(word for line in lines for word in line.split())
        for partition in range(PARTITIONS):
            records = [Record(line.encode()) for line in lines[partition::PARTITIONS]]
            self._driver.produce(WORDS, records, ProducerOptions(), partition)

    def read(self, what: str) -> None:
        """Until every word has been counted up to the end."""
        wait_until(self._has_all, what, TIMEOUT_S)

    def _has_all(self) -> bool:
        for message in self._reader.consume(1000, timeout=0.2):
            assert message.error() is None, message.error()
            self.counts[(message.key() or b"").decode()].append(int(message.value() or b"0"))
        return {word: counts[-1] for word, counts in self.counts.items()} == self._written

    def close(self) -> None:
        self._reader.close()
        self._driver.close()


def check(version: str) -> list[str]:
    """What was counted otherwise than once, and in order."""
    with tempfile.TemporaryDirectory(prefix="compat-streams-") as scratch:
        cluster = TidelogCluster(Path(scratch))
        with running(cluster), instances(version, cluster.bootstrap, Path(scratch)) as application:
            return wrong_counts(count_words(cluster, application))


def count_words(broker: BrokerProcess, application: Instances) -> Mapping[str, list[int]]:
    counting = Counting(broker.bootstrap)
    try:
        counting.write()
        application.start("first")
        application.start("second")
        counting.read("both instances count")
        counting.write()
        application.kill("second")
        counting.write()
        counting.read("the first instance goes on alone")
        return counting.counts
    finally:
        counting.close()


def wrong_counts(counts: Mapping[str, list[int]]) -> list[str]:
    """Each word must have been counted from one on, one by one."""
    return [
        f"{word}: {found[place - 1] if place else 'the start'} is followed by {found[place]}"
        for word, found in counts.items()
        if (place := first_wrong_place(found)) is not None
    ]


def first_wrong_place(counts: list[int]) -> int | None:
    return next((place for place, count in enumerate(counts) if count != place + 1), None)
