"""A client with TLS: confluent-kafka, whose librdkafka is built with OpenSSL, which that of the other parts is not.

Its own process, so that its CPU time is not the broker's:
`python -m bench.tls_client produce --bootstrap 127.0.0.1:9093 --authority ca.pem --topic t --records 100000`.
"""

import argparse
import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

TIMEOUT_S = 120.0
MESSAGES_AT_ONCE = 10_000


def settings_of(options: argparse.Namespace) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": options.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": options.authority,
        "enable.ssl.certificate.verification": True,
        "log_level": 0,
    }


def produce(options: argparse.Namespace) -> float:
    """Seconds until the last record is acknowledged."""
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer({**settings_of(options), "acks": options.acks, "linger.ms": 5})
    producer.list_topics(options.topic, timeout=TIMEOUT_S)  # connected before the time counts
    value = b"x" * options.value_bytes
    began = time.perf_counter()
    for number in range(options.records):
        while True:
            try:
                producer.produce(options.topic, value, partition=number % options.partitions, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(TIMEOUT_S)
    seconds = time.perf_counter() - began
    if left or failures:
        raise SystemExit(f"{left} records were not acknowledged, {len(failures)} failed: {failures[:1]}")
    return seconds


def consume(options: argparse.Namespace) -> float:
    """Seconds until all records are there, with the connections."""
    consumer = Consumer({**settings_of(options), "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(options.topic, each, OFFSET_BEGINNING) for each in range(options.partitions)])
    consumed, began, deadline = 0, time.perf_counter(), time.monotonic() + TIMEOUT_S
    while consumed < options.records:
        messages = consumer.consume(MESSAGES_AT_ONCE, 0.1)
        if failed := [each.error() for each in messages if each.error() is not None]:
            raise SystemExit(str(failed[0]))
        consumed += len(messages)
        if time.monotonic() > deadline:
            raise SystemExit(f"{consumed} of {options.records} records consumed")
        if messages:
            deadline = time.monotonic() + TIMEOUT_S
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=("produce", "consume"))
    for name in ("bootstrap", "authority", "topic"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("records", 10_000), ("value-bytes", 1024), ("partitions", 1), ("acks", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    seconds = produce(options) if options.work == "produce" else consume(options)
    json.dump(
        {"records": options.records, "value_bytes": options.records * options.value_bytes, "seconds": seconds},
        sys.stdout,
    )


if __name__ == "__main__":
    main()
