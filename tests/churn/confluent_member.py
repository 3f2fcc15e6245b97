"""confluent-kafka as a member of a group."""

from collections import defaultdict
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.churn.journal import Ledger
from tests.churn.membership import (
    FETCH_WAIT_MS,
    FORGOTTEN_CODES,
    HEARTBEAT_MS,
    METADATA_AGE_MS,
    POLL_MS,
    SESSION_MS,
    Options,
    Protocol,
    take_part,
)


class ConfluentMember:
    def __init__(self, options: Options, ledger: Ledger) -> None:
        self._topic = options.topic
        self._ledger = ledger
        self._consumer = Consumer(_settings(options))
        self._consumer.subscribe(
            [options.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _on_assign(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._ledger.assigned(_numbers(places))

    def _on_revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        is_known = self._commit(self._ledger.positions())
        self._ledger.given_up(_numbers(places), is_lost=not is_known)

    def _on_lost(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._ledger.given_up(_numbers(places), is_lost=True)

    def poll(self) -> None:
        polled: dict[int, dict[int, bytes]] = defaultdict(dict)
        messages: list[Any] = self._consumer.consume(500, POLL_MS / 1000)
        for message in messages:
            error = message.error()
            if error is None:
                polled[message.partition()][message.offset()] = message.value()
            elif error.fatal():
                raise SystemExit(str(error))
        for partition, records in polled.items():
            self._ledger.processed(partition, records)

    def commit(self) -> None:
        self._commit(self._ledger.uncommitted())

    def _commit(self, offsets: dict[int, int]) -> bool:
        """Whether the coordinator still knows this member, as far as one can tell."""
        if not offsets:
            return True
        self._ledger.committing(offsets)
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        try:
            answered = self._consumer.commit(offsets=places, asynchronous=False) or []
            errors = [place.error for place in answered if place.error is not None]
        except KafkaException as exception:
            errors = [exception.args[0]]
        if not errors:
            self._ledger.committed(offsets)
            return True
        self._ledger.rejected(offsets, str(errors[0]))
        return errors[0].code() not in FORGOTTEN_CODES | {KafkaError._FENCED}

    def close(self) -> None:
        self._consumer.close()


def run(options: Options, ledger: Ledger, ended: Event) -> None:
    take_part(ConfluentMember(options, ledger), ended)


def _numbers(places: list[TopicPartition]) -> list[int]:
    return [place.partition for place in places]


def _settings(options: Options) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "retry.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
        # A broker that has not heard of a new topic yet says so, and librdkafka would ask again after five minutes.
        "topic.metadata.refresh.interval.ms": METADATA_AGE_MS,
        "log_level": 3,
    }
    if options.instance_id is not None:
        settings["group.instance.id"] = options.instance_id
    if options.protocol is Protocol.CONSUMER:
        return settings | {"group.protocol": "consumer"}
    return settings | {
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "session.timeout.ms": SESSION_MS,
        "partition.assignment.strategy": (
            "cooperative-sticky" if options.protocol is Protocol.COOPERATIVE else "range"
        ),
    }
