"""Three brokers as `tidelog up` runs them, of which those that lead or coordinate something can be killed."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.churn.membership import SESSION_MS
from tests.clients.broker import BROKER_IDS, TidelogCluster
from tidelog.cli.local_cluster.plan import default_settings
from tidelog.replicated.partition_keys import partition_for

TIMEOUT_S = 60.0
POLL_S = 0.05
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SETTINGS = {
    **default_settings(len(BROKER_IDS)),
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "5000",
}


class Overdue(AssertionError):
    """Something that should happen did not; the message says what."""


def wait_for(condition: Callable[[], bool], describe: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise Overdue(f"waited {timeout_s:.0f} s in vain: {describe()}")
        time.sleep(POLL_S)


class Brokers:
    def __init__(self, directory: Path) -> None:
        self._cluster = TidelogCluster(directory, SETTINGS)
        self.bootstrap = self._cluster.bootstrap
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "retry.backoff.ms": 50})

    def start(self) -> None:
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    def close(self) -> None:
        self._cluster.kill()

    def create_topic(self, name: str, partitions: int) -> None:
        new = NewTopic(name, partitions, len(BROKER_IDS), config={"min.insync.replicas": "2"})
        self._admin.create_topics([new])[name].result(30)

    # -- who does what

    def leader(self, topic: str, partition: int) -> int:
        """-1: nobody, or nobody can be asked."""
        found = self._partitions(topic).get(partition)
        return -1 if found is None else int(found.leader)

    def coordinator_of_group(self, group: str) -> int:
        return self.leader(OFFSETS_TOPIC, partition_for(group, max(len(self._partitions(OFFSETS_TOPIC)), 1)))

    def coordinator_of_transactions(self, transactional_id: str) -> int:
        count = max(len(self._partitions(TRANSACTIONS_TOPIC)), 1)
        return self.leader(TRANSACTIONS_TOPIC, partition_for(transactional_id, count))

    def _partitions(self, topic: str) -> dict[int, Any]:
        with suppress(KafkaException):
            found = self._admin.list_topics(topic, timeout=5).topics.get(topic)
            if found is not None and found.error is None:
                return dict(found.partitions)
        return {}

    # -- deaths

    def kill(self, broker_id: int) -> None:
        self._cluster.brokers[broker_id].kill()

    def kill_found(self, find: Callable[[], int]) -> int:
        """Kills the broker that `find` returns, as soon as it returns one."""
        found = -1

        def is_found() -> bool:
            nonlocal found
            found = find()
            return found >= 0

        wait_for(is_found, lambda: "nobody leads it")
        self.kill(found)
        return found

    def bring_back(self, broker_id: int) -> None:
        self._cluster.start_brokers([broker_id])

    def wait_until_in_sync(self, topic: str) -> None:
        def is_whole() -> bool:
            partitions = self._partitions(topic)
            return bool(partitions) and all(len(each.isrs) == len(BROKER_IDS) for each in partitions.values())

        wait_for(is_whole, lambda: f"replicas of {topic}: {self._partitions(topic)}")

    def surprises(self) -> list[str]:
        """Lines in the logs of brokers that should not be there."""
        return [
            f"broker {broker_id}: {line}"
            for broker_id, broker in self._cluster.brokers.items()
            for line in broker.output().splitlines()
            if " ERROR " in line or "Traceback" in line
        ]
