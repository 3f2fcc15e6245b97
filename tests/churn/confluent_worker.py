"""confluent-kafka reads in a group, and writes and commits in transactions (KIP-447)."""

import itertools
from collections.abc import Callable
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.churn.copying import ABORT_EVERY, ABORTED, RECORDS_AT_ONCE, TRANSACTION_TIMEOUT_MS, Job
from tests.churn.membership import FETCH_WAIT_MS, HEARTBEAT_MS, POLL_MS, SESSION_MS

CALL_TIMEOUT_S = 30.0


class MustAbort(Exception):
    """The transaction cannot be committed."""


class ConfluentWorker:
    def __init__(self, job: Job) -> None:
        self._job = job
        common = {
            "bootstrap.servers": job.bootstrap,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 3,
        }
        self._producer = Producer(
            common
            | {
                "transactional.id": job.transactional_id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        _call(self._producer.init_transactions, CALL_TIMEOUT_S)
        self._consumer = Consumer(
            common
            | {
                "group.id": job.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": FETCH_WAIT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "session.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([job.source])
        self._numbers = itertools.count(1)

    def step(self) -> None:
        polled: list[Any] = self._consumer.consume(RECORDS_AT_ONCE, POLL_MS / 1000)
        messages = [message for message in polled if message.error() is None]
        if not messages:
            return
        self._producer.begin_transaction()
        try:
            self._copy(messages, is_to_be_aborted=next(self._numbers) % ABORT_EVERY == 0)
        except MustAbort:
            _call(self._producer.abort_transaction, CALL_TIMEOUT_S)
            self._rewind()

    def _copy(self, messages: list[Any], *, is_to_be_aborted: bool) -> None:
        for message in messages:
            value = ABORTED + message.value() if is_to_be_aborted else message.value()
            self._producer.produce(self._job.target, value, partition=message.partition())
        if is_to_be_aborted:
            self._producer.flush(CALL_TIMEOUT_S)
            raise MustAbort
        ends = {message.partition(): message.offset() + 1 for message in messages}
        places = [TopicPartition(self._job.source, partition, end) for partition, end in ends.items()]
        metadata = self._consumer.consumer_group_metadata()
        _call(self._producer.send_offsets_to_transaction, places, metadata, CALL_TIMEOUT_S)
        _call(self._producer.commit_transaction, CALL_TIMEOUT_S)

    def _rewind(self) -> None:
        """To what is committed: whatever was read since is read again, also what is polled until then."""
        while True:
            try:
                for place in self._consumer.committed(self._consumer.assignment(), CALL_TIMEOUT_S):
                    self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
                return
            except KafkaException as exception:
                if exception.args[0].fatal():
                    raise
                print(f"cannot rewind yet: {exception}", flush=True)
                self._consumer.poll(POLL_MS / 1000)  # a rebalance may be due

    def close(self) -> None:
        self._consumer.close()


def _call(method: Callable[..., object], *arguments: object) -> None:
    while True:
        try:
            method(*arguments)
            return
        except KafkaException as exception:
            error = exception.args[0]
            print(f"{method.__name__}: {error}", flush=True)
            if error.txn_requires_abort():
                raise MustAbort from exception
            if not error.retriable():
                raise


def run(job: Job, ended: Event) -> None:
    worker = ConfluentWorker(job)
    while not ended.is_set():
        worker.step()
    worker.close()
