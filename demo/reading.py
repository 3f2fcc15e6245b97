"""Results of the tour: the table, the totals and the dead letters, read back with the libraries users have."""

import asyncio
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from demo.checks import Row, Totals
from tidelog.client.consumer.consumer import BEGINNING, END, ConsumedRecord, Consumer
from tidelog.client.consumer.consumer_settings import READ_COMMITTED, ConsumerSettings
from tidelog.client.consumer.offsets import list_offsets
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.routing.cluster import Cluster
from tidelog.runtime.randomness import SystemRandomness
from tidelog.runtime.socket_network import SocketNetwork
from tidelog.types import TopicPartition

MAX_FRAME_BYTES = 64 * 1024 * 1024
SILENCE_LIMIT_S = 20.0
POLL_S = 0.5
"""What is left may be the end of a transaction, and that is never shown."""


class ReadingFailed(Exception):
    """The message says why."""


def rows_of_table(directory: Path) -> list[Row]:
    from deltalake import DeltaTable

    table = DeltaTable(str(directory)).to_pyarrow_dataset().to_table(columns=list(Row._fields), use_threads=False)
    return [Row(*values) for values in zip(*(table[name].to_pylist() for name in Row._fields), strict=True)]


def records_of_topic(bootstrap: str, topic: str) -> list[ConsumedRecord]:
    """All that it holds now; a topic that nobody wrote to may not be there."""
    return asyncio.run(_records_of_topic(bootstrap, topic))


async def _records_of_topic(bootstrap: str, topic: str) -> list[ConsumedRecord]:
    network = SocketNetwork(MAX_FRAME_BYTES)
    async with Cluster(network, parse_bootstrap(bootstrap), SystemRandomness()) as cluster:
        metadata = await cluster.ask_topics([topic])
        if topic not in metadata.topics:
            return []
        partitions = [TopicPartition(topic, number) for number in metadata.topic(topic).partitions]
        ends = await list_offsets(cluster, dict.fromkeys(partitions, END), isolation_level=READ_COMMITTED)
        records: list[ConsumedRecord] = []
        async with Consumer(cluster, ConsumerSettings(isolation_level=READ_COMMITTED)) as consumer:
            await consumer.assign(dict.fromkeys(partitions, BEGINNING))
            quiet_s = 0.0
            while missing := [key for key in partitions if consumer.positions[key] < ends[key].offset]:
                came = await consumer.poll(POLL_S)
                quiet_s = 0.0 if came else quiet_s + POLL_S
                if quiet_s > SILENCE_LIMIT_S:
                    raise ReadingFailed(f"the end of {', '.join(map(str, missing))} could not be read")
                records += came
        return records


def latest_totals(records: Iterable[ConsumedRecord]) -> dict[str, Totals]:
    """The last record of each product counts; all of a product are in one partition, in order."""
    latest: dict[str, Totals] = {}
    for record in records:
        value = json.loads(record.value or b"{}", parse_float=Decimal)
        latest[value["product"]] = Totals(value["orders"], value["pieces"], Decimal(value["revenue"]))
    return latest


def different_events(dead_letters: Iterable[ConsumedRecord]) -> set[tuple[str, ...]]:
    """By where each stood in its topic: a dead letter is written at least once."""
    names = ("tidelog.topic", "tidelog.partition", "tidelog.offset")
    return {tuple(header_of(record, name) for name in names) for record in dead_letters}


def header_of(record: ConsumedRecord, name: str) -> str:
    return next((value or b"" for key, value in record.headers if key == name), b"").decode()
