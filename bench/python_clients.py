"""Python clients side by side: `python -m bench.python_clients`; tidelog.client, aiokafka and confluent-kafka.

Records of 100 bytes without a key, to and from one partition of a broker in another process. A reader looks at every
value. CPU is that of the client's process, all its threads included; the time of one record sent alone is measured with
linger 0.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from statistics import median
from typing import Any

from tidelog.testing import Cluster

VALUE = b"x" * 100
WARM_RECORDS = 1_000
LATENCY_RECORDS = 300
BATCH_BYTES = 256 * 1024
FETCH_RECORDS = 10_000
TIMEOUT_S = 60.0

Figures = dict[str, float]
Work = Callable[[], Coroutine[Any, Any, None]]


def used(value: bytes | None) -> None:
    """A reader that looks at every value: what a client decodes only on demand counts, too."""
    assert value is not None


async def records_per_cpu_second(records: int, work: Work) -> float:
    begun = time.process_time()
    await work()
    return records / (time.process_time() - begun)


async def measure_tidelog(address: str, records: int) -> Figures:
    from tidelog.client import Producer

    figures: Figures = {}
    async with Producer(address) as producer:

        async def write(count: int = records) -> None:
            for _ in range(count):
                await producer.enqueue("tidelog", VALUE)
            await producer.flush()

        await write(WARM_RECORDS)
        figures["produce"] = await records_per_cpu_second(records, write)

    figures |= await measure_tidelog_reading(address, records)
    async with Producer(address, linger_ms=0) as producer:
        figures["one record, ms"] = await milliseconds_each(lambda: producer.send("tidelog-alone", VALUE))
    return figures


async def measure_tidelog_reading(address: str, records: int) -> Figures:
    from tidelog.client import Consumer

    async def read(how: Callable[[Any, int], Coroutine[Any, Any, None]], wanted: int) -> None:
        async with Consumer(address, "tidelog", start="earliest") as consumer:
            await how(consumer, wanted)

    figures: Figures = {}
    for title, how in (("one by one", read_one_by_one), ("batches", read_batches), ("Arrow tables", read_tables)):
        await read(how, WARM_RECORDS)
        figures[f"consume, {title}"] = await records_per_cpu_second(records, partial(read, how, records))
    return figures


async def read_one_by_one(consumer: Any, wanted: int) -> None:
    async for record in consumer:
        used(record.value)
        wanted -= 1
        if not wanted:
            break


async def read_batches(consumer: Any, wanted: int) -> None:
    async for batch in consumer.batches():
        for record in batch.records:
            used(record.value)
        wanted -= len(batch.records)
        if wanted <= 0:
            break


async def read_tables(consumer: Any, wanted: int) -> None:
    async for table in consumer.tables():
        wanted -= table.num_rows
        if wanted <= 0:
            break


async def measure_aiokafka(address: str, records: int) -> Figures:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    figures: Figures = {}
    options = {"bootstrap_servers": address, "enable_idempotence": True}
    async with AIOKafkaProducer(**options, linger_ms=5, max_batch_size=BATCH_BYTES) as producer:

        async def write(count: int = records) -> None:
            for _ in range(count):
                await producer.send("aiokafka", VALUE)
            await producer.flush()

        await write(WARM_RECORDS)
        figures["produce"] = await records_per_cpu_second(records, write)

    async def read_all() -> None:
        async with AIOKafkaConsumer("aiokafka", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            await read_one_by_one(consumer, records)

    async def read_many() -> None:
        async with AIOKafkaConsumer("aiokafka", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            wanted = records
            while wanted > 0:
                for found in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in found:
                        used(record.value)
                    wanted -= len(found)

    figures["consume, one by one"] = await records_per_cpu_second(records, read_all)
    figures["consume, batches"] = await records_per_cpu_second(records, read_many)
    async with AIOKafkaProducer(**options, linger_ms=0) as producer:
        figures["one record, ms"] = await milliseconds_each(lambda: producer.send_and_wait("aiokafka-alone", VALUE))
    return figures


async def measure_confluent(address: str, records: int) -> Figures:
    from confluent_kafka import Consumer, Producer

    figures: Figures = {}
    options = {"bootstrap.servers": address, "enable.idempotence": True, "queue.buffering.max.messages": 10_000_000}
    producer = Producer({**options, "linger.ms": 5, "log_level": 0})

    async def write(count: int = records) -> None:
        for number in range(count):
            producer.produce("confluent", VALUE)
            if number % WARM_RECORDS == 0:
                producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0

    async def read() -> None:
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": "bench", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(["confluent"])
        wanted = records
        while wanted > 0:
            found = consumer.consume(FETCH_RECORDS, 1)
            for message in found:
                used(message.value())
            wanted -= len(found)
        consumer.close()

    await write(WARM_RECORDS)
    figures["produce"] = await records_per_cpu_second(records, write)
    figures["consume, batches"] = await records_per_cpu_second(records, read)
    alone = Producer({**options, "linger.ms": 0, "log_level": 0})

    async def send() -> None:
        alone.produce("confluent-alone", VALUE)
        assert alone.flush(TIMEOUT_S) == 0

    figures["one record, ms"] = await milliseconds_each(send)
    return figures


async def milliseconds_each(send: Callable[[], Any]) -> float:
    await send()
    times = []
    for _ in range(LATENCY_RECORDS):
        begun = time.perf_counter()
        await send()
        times.append(time.perf_counter() - begun)
    return median(times) * 1000


CLIENTS: dict[str, Callable[[str, int], Coroutine[Any, Any, Figures]]] = {
    "tidelog.client": measure_tidelog,
    "aiokafka": measure_aiokafka,
    "confluent-kafka": measure_confluent,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare Python clients on this machine.")
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    samples: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.rounds):
        for name, measure in CLIENTS.items():
            with Cluster(process=True) as kafka:
                for title, value in asyncio.run(measure(kafka.bootstrap_servers, options.records)).items():
                    samples.setdefault(title, {}).setdefault(name, []).append(value)
    lines = [f"| records per CPU second | {' | '.join(CLIENTS)} | to aiokafka |", f"|---|{'---|' * (len(CLIENTS) + 1)}"]
    for title, found in samples.items():
        medians = {name: median(values) for name, values in found.items()}
        digits = 2 if "ms" in title else 0
        cells = [f"{medians[name]:,.{digits}f}" if name in medians else "" for name in CLIENTS]
        ratio = f"{medians['tidelog.client'] / medians['aiokafka']:.1f}" if "aiokafka" in medians else ""
        lines.append(f"| {title} | {' | '.join(cells)} | {ratio} |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
