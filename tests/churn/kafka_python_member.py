"""kafka-python as a member of a group."""

from collections.abc import Iterable
from threading import Event
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.churn.journal import Ledger
from tests.churn.membership import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_MS,
    Options,
    Protocol,
    take_part,
)

# A poll that ends in the middle of a rebalance may lose the assignment.
LONG_POLL_MS = 500


class KafkaPythonMember(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, options: Options, ledger: Ledger) -> None:
        self._topic = options.topic
        self._ledger = ledger
        self._consumer = KafkaConsumer(**_settings(options))
        self._consumer.subscribe([options.topic], listener=self)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self._ledger.assigned(_numbers(assigned), self._consumer._coordinator._generation.generation_id)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """It cannot commit in here: what it has processed since its last commit is read again by the next owner."""
        self._ledger.given_up(_numbers(revoked))

    def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
        self._ledger.given_up(_numbers(lost), is_lost=True)

    def poll(self) -> None:
        for place, records in self._consumer.poll(timeout_ms=LONG_POLL_MS).items():
            self._ledger.processed(place.partition, {record.offset: record.value for record in records})

    def commit(self) -> None:
        offsets = self._ledger.uncommitted()
        if not offsets:
            return
        self._ledger.committing(offsets)
        try:
            self._consumer.commit(
                {
                    TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
                    for partition, offset in offsets.items()
                }
            )
        except KafkaError as error:
            self._ledger.rejected(offsets, repr(error))
            return
        self._ledger.committed(offsets)

    def close(self) -> None:
        self._consumer.close()


def run(options: Options, ledger: Ledger, ended: Event) -> None:
    take_part(KafkaPythonMember(options, ledger), ended)


def _numbers(places: Iterable[TopicPartition]) -> list[int]:
    return [place.partition for place in places]


def _settings(options: Options) -> dict[str, Any]:
    is_cooperative = options.protocol is Protocol.COOPERATIVE
    return {
        "bootstrap_servers": options.bootstrap,
        "group_id": options.group,
        "group_instance_id": options.instance_id,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": FETCH_WAIT_MS,
        "heartbeat_interval_ms": HEARTBEAT_MS,
        "session_timeout_ms": SESSION_MS,
        "reconnect_backoff_max_ms": 200,
        "partition_assignment_strategy": [CooperativeStickyAssignor if is_cooperative else RangePartitionAssignor],
    }
