"""`tidelog perf produce`, `consume` and `latency`."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from tidelog.cli.client_command import cancel_on_interrupt, no_such_topic, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.latencies import Latencies, ms_text, rate_json, rate_text
from tidelog.cli.produce import ACKS
from tidelog.cli.produce_command import Pace
from tidelog.client.admin.admin import Admin
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.offsets import BEGINNING, END
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.producer import Producer, ProducerSettings
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError, UnknownTopicOrPartition
from tidelog.protocol.compression import Codec
from tidelog.runtime.clock import SystemClock
from tidelog.terminal.plurals import plural
from tidelog.types import TopicPartition

REPORT_S = 1.0
SAMPLE_EVERY = 20
"""One in so many produced records has its latency measured: a task for each record would limit the throughput."""
MAX_BUFFERED_BYTES = 4 * 1024 * 1024
"""Small, so that the latency is not mostly that of the queue in this process."""
DELIVERY_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 30.0


class Progress:
    """Counts of a measurement, in total and since the last line."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        self.began_at = self._now()
        self._last_at = self.began_at
        self._ended_at: float | None = None
        self.records = 0
        self.size_bytes = 0
        self.latencies = Latencies()
        self._at_last_line = (self.began_at, 0, 0)
        """Time, records and bytes."""
        self._recent_latencies = Latencies()

    @property
    def seconds(self) -> float:
        return (self._now() if self._ended_at is None else self._ended_at) - self.began_at

    def end_at_last_record(self) -> None:
        """The wait for a record that never came is no part of the measurement."""
        self._ended_at = self._last_at

    def add(self, records: int, size_bytes: int) -> None:
        self._last_at = self._now()
        self.records += records
        self.size_bytes += size_bytes

    def measured(self, latency_s: float) -> None:
        self.latencies.add(latency_s)
        self._recent_latencies.add(latency_s)

    def line(self) -> str:
        """Figures since the last line."""
        at, records, size_bytes = self._at_last_line
        now = self._now()
        text = rate_text(self.records - records, self.size_bytes - size_bytes, now - at)
        recent, self._recent_latencies = self._recent_latencies, Latencies()
        self._at_last_line = (now, self.records, self.size_bytes)
        latency = f", latency mean {ms_text(recent.mean_s)}, max {ms_text(recent.longest_s)}" if recent.count else ""
        return f"{self.seconds:5.0f} s  {plural(self.records, 'record')}: {text}{latency}"


@asynccontextmanager
async def _reported(progress: Progress) -> AsyncIterator[None]:
    """Prints the progress to standard error every second."""

    async def report() -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            note(progress.line())

    reporting = asyncio.create_task(report())
    try:
        yield
    finally:
        reporting.cancel()
        await asyncio.wait([reporting])


async def _until_interrupted(work: Callable[[], Awaitable[None]]) -> None:
    """Run the measurement. Ctrl-C ends it without an error, so that the caller reports what was measured."""
    cancel_on_interrupt()
    try:
        await work()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()


async def produce(cluster: Cluster, options: argparse.Namespace) -> None:
    settings = ProducerSettings(
        acks=ACKS[options.acks],
        compression=Codec[options.compression.upper()],
        delivery_timeout_s=DELIVERY_TIMEOUT_S,
        max_buffered_bytes=MAX_BUFFERED_BYTES,
    )
    samples: set[asyncio.Task[None]] = set()
    async with Producer(cluster, SystemClock(), settings) as producer:
        await _warm_up(producer, options.topic)
        progress = Progress()
        async with _reported(progress):
            await _until_interrupted(lambda: _write(cluster, producer, progress, samples, options))
            await producer.flush()
            if samples:
                await asyncio.wait(samples)
    _print_result(progress, options, "written to")


async def _warm_up(producer: Producer, topic: str) -> None:
    """Send a first record, which is not measured: it waits for metadata, and perhaps for the topic to be created."""
    await producer.send(topic, b"")


async def _write(
    cluster: Cluster,
    producer: Producer,
    progress: Progress,
    samples: "set[asyncio.Task[None]]",
    options: argparse.Namespace,
) -> None:
    now = asyncio.get_running_loop().time
    pace = Pace(options.rate, now()) if options.rate else None
    value = cluster.randomness.bytes(options.size)

    async def measure(delivery: "Awaitable[object]", began_at: float) -> None:
        with suppress(KafkaError, ConnectionLost, GaveUp):  # raised by `raise_failure` and `flush`
            await delivery
            progress.measured(now() - began_at)

    for number in range(options.records):
        if pace is not None and (wait_s := pace.wait_s(now())) > 0:
            await asyncio.sleep(wait_s)
        began_at = now()
        delivery = await producer.enqueue(options.topic, value)
        progress.add(1, options.size)
        if number % SAMPLE_EVERY == 0 or pace is not None:
            sample = asyncio.create_task(measure(delivery, began_at))
            samples.add(sample)
            sample.add_done_callback(samples.discard)
        producer.raise_failure()


async def consume(cluster: Cluster, options: argparse.Namespace) -> None:
    partitions = await _partitions(cluster, options.topic)
    progress = Progress()

    async def read() -> None:
        async with Consumer(cluster) as consumer:
            await consumer.assign(dict.fromkeys(partitions, BEGINNING))
            while progress.records < options.records:
                records = (await consumer.poll(options.timeout))[: options.records - progress.records]
                if not records:
                    progress.end_at_last_record()
                    return
                progress.add(len(records), sum(len(each.value or b"") + len(each.key or b"") for each in records))

    async with _reported(progress):
        await _until_interrupted(read)
    _print_result(progress, options, "read from")


async def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    try:
        found = await Admin(cluster).describe_topic(topic)
    except UnknownTopicOrPartition:
        raise no_such_topic(topic) from None
    return [TopicPartition(topic, each) for each in sorted(found.partitions)]


async def latency(cluster: Cluster, options: argparse.Namespace) -> None:
    """Round trips through one partition, so that the next record read is the one just written."""
    settings = ProducerSettings(acks=ACKS[options.acks], linger_s=0.0, delivery_timeout_s=DELIVERY_TIMEOUT_S)
    acknowledged = Latencies()
    async with Producer(cluster, SystemClock(), settings) as producer:
        await _warm_up(producer, options.topic)
        first = (await _partitions(cluster, options.topic))[0]
        async with Consumer(cluster) as consumer:
            await consumer.assign({first: END})
            progress = Progress()
            async with _reported(progress):
                await _until_interrupted(
                    lambda: _round_trips(cluster, producer, consumer, first, progress, acknowledged, options)
                )
    if options.json:
        found = rate_json(progress.records, progress.size_bytes, progress.seconds)
        print(json.dumps({**found, "acknowledged": acknowledged.as_json(), "read": progress.latencies.as_json()}))
        return
    print(f"{plural(progress.records, 'record')} of {options.size:,} bytes, acks={options.acks}")
    print(f"acknowledged  {acknowledged.text()}")
    print(f"read          {progress.latencies.text()}")


async def _round_trips(
    cluster: Cluster,
    producer: Producer,
    consumer: Consumer,
    where: TopicPartition,
    progress: Progress,
    acknowledged: Latencies,
    options: argparse.Namespace,
) -> None:
    now = asyncio.get_running_loop().time
    pace, value = Pace(options.rate, now()), cluster.randomness.bytes(options.size)
    for _ in range(options.records):
        if (wait_s := pace.wait_s(now())) > 0:
            await asyncio.sleep(wait_s)
        began_at = now()
        delivery = await producer.enqueue(where.topic, value, partition=where.partition)
        reading = asyncio.create_task(consumer.poll(READ_TIMEOUT_S))
        await delivery
        acknowledged.add(now() - began_at)
        if not await reading:
            raise CommandError(f"the record was acknowledged, but not read within {READ_TIMEOUT_S:.0f} s")
        progress.measured(now() - began_at)
        progress.add(1, options.size)


def _print_result(progress: Progress, options: argparse.Namespace, what: str) -> None:
    figures = (progress.records, progress.size_bytes, progress.seconds)
    if options.json:
        latency = {"latency": progress.latencies.as_json()} if progress.latencies.count else {}
        print(json.dumps({"topic": options.topic, **rate_json(*figures), **latency}))
        return
    count = plural(progress.records, "record")
    print(f"{count} {what} {options.topic} in {progress.seconds:.1f} s: {rate_text(*figures)}")
    if progress.latencies.count:
        print(f"acknowledged  {progress.latencies.text()}")
