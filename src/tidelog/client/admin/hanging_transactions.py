"""Hanging transactions (KIP-664): open in a partition, and known to no coordinator that would end them.

They hold back the last stable offset, and with it all read-committed consumers.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.client.consumer.offsets import END, list_offsets
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.messages.describe_producers import ProducerState
from tidelog.types import TopicPartition

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
OLD_TRANSACTION_MS = 15 * 60_000
"""transaction.max.timeout.ms: no coordinator lets a transaction live longer. A younger one may just have begun."""
MAX_CHECKED_PARTITIONS = 50
"""Partitions whose producers are listed; only those with a last stable offset below the high watermark count."""


class HangingTransaction(NamedTuple):
    where: TopicPartition
    producer: ProducerState

    def age_ms(self, now_ms: int) -> int:
        return now_ms - self.producer.last_timestamp


async def find_hanging(
    cluster: Cluster, partitions: Sequence[TopicPartition], now_ms: int, *, timeout_s: float
) -> list[HangingTransaction]:
    """Hanging transactions in these partitions, which must have leaders. Raises an error if brokers do not answer."""
    admin = TransactionAdmin(cluster, timeout_s=timeout_s)
    coordinated = {each.producer_id for each in await admin.list_transactions(OPEN_STATES)}
    found = [
        HangingTransaction(where, producer)
        for where in await _held_back(cluster, partitions, timeout_s)
        for producer in await admin.producers(where)
        if producer.current_txn_start_offset >= 0 and producer.producer_id not in coordinated
    ]
    return [each for each in found if each.age_ms(now_ms) > OLD_TRANSACTION_MS]


async def _held_back(cluster: Cluster, partitions: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """Partitions whose last stable offset is below the high watermark."""
    if not partitions:
        return []
    wanted = dict.fromkeys(partitions, END)
    ends = await list_offsets(cluster, wanted, timeout_s=timeout_s)
    stable = await list_offsets(cluster, wanted, isolation_level=READ_COMMITTED, timeout_s=timeout_s)
    return [each for each in partitions if stable[each].offset < ends[each].offset][:MAX_CHECKED_PARTITIONS]
