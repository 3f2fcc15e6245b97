"""Our own client copies one partition in transactions; its transactional id keeps others from doing the same."""

import asyncio
import itertools
from threading import Event

from tests.churn.copying import ABORT_EVERY, ABORTED, TRANSACTION_TIMEOUT_MS, Job
from tests.churn.membership import POLL_MS
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.fetched_records import ConsumedRecord
from tidelog.client.groups.group_offsets import GroupMember
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.types import TopicPartition

MAX_FRAME_BYTES = 1 << 24


def run(job: Job, ended: Event) -> None:
    asyncio.run(_run(job, ended))


async def _run(job: Job, ended: Event) -> None:
    addresses = parse_bootstrap(job.bootstrap)
    numbers = itertools.count(1)
    async with Cluster(SocketNetwork(MAX_FRAME_BYTES), addresses, SystemRandomness()) as cluster:
        while not ended.is_set():
            try:
                await _copy_until_failure(cluster, job, ended, numbers)
            except (KafkaError, ConnectionLost, GaveUp) as error:
                print(f"starting again after {error!r}", flush=True)


async def _copy_until_failure(cluster: Cluster, job: Job, ended: Event, numbers: "itertools.count[int]") -> None:
    """The producer comes first: when it is there, whatever was under way under its id has ended."""
    source = TopicPartition(job.source, job.partition)
    async with TransactionalProducer(
        cluster, SystemClock(), job.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    ) as producer:
        committed = (await GroupAdmin(cluster).offsets(job.group)).get(source)
        async with Consumer(cluster) as consumer:
            await consumer.assign({source: 0 if committed is None else committed.offset})
            while not ended.is_set():
                records = await consumer.poll(POLL_MS / 1000)
                if records and next(numbers) % ABORT_EVERY == 0:
                    await _abort(producer, job, records)
                if records:
                    await _copy(producer, job, records)


async def _abort(producer: TransactionalProducer, job: Job, records: list[ConsumedRecord]) -> None:
    producer.begin()
    for record in records:
        await producer.enqueue(job.target, ABORTED + (record.value or b""), partition=job.partition)
    await producer.flush()
    await producer.abort()


async def _copy(producer: TransactionalProducer, job: Job, records: list[ConsumedRecord]) -> None:
    producer.begin()
    for record in records:
        await producer.enqueue(job.target, record.value, partition=job.partition)
    source = TopicPartition(job.source, job.partition)
    await producer.send_offsets({source: records[-1].offset + 1}, GroupMember(job.group))
    await producer.commit()
