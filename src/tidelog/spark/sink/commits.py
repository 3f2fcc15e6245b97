"""Transactions of the driver around the tasks of a batch that is written exactly once: open, commit, abort."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.groups.group_offsets import GroupMember
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp, reason_of
from tidelog.client.producer.producer_batch import ProducerIdAndEpoch
from tidelog.client.producer.transaction_group import NO_BATCH, TransactionGroup
from tidelog.client.producer.transactional_identity import TransactionalIdentity
from tidelog.client.producer.transactional_producer import TransactionalProducer
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.coordinators import Coordinators
from tidelog.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    UnknownProducerId,
)
from tidelog.runtime.clock import SystemClock
from tidelog.spark import client_thread
from tidelog.spark.errors import BrokersUnavailable, SourceError
from tidelog.spark.options.query import WriteOptions
from tidelog.spark.sink.task_messages import (
    GroupTransaction,
    NotExactlyOnce,
    SharedTransaction,
    WriteTransaction,
    Written,
    check_one_task_each,
    winners,
)
from tidelog.spark.sink.transaction_names import QueryName

logger = logging.getLogger(__name__)

T = TypeVar("T")

FENCING_ERRORS = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState, UnknownProducerId)
"""Errors of a driver or task whose transaction has ended."""


class QueryFenced(SourceError):
    """Another run of the query has taken over, or the transaction has timed out."""


_coordinators: WeakKeyDictionary[Cluster, Coordinators] = WeakKeyDictionary()


def coordinators_of(cluster: Cluster) -> Coordinators:
    """One per cluster of the client thread; used only by that thread."""
    return _coordinators.setdefault(cluster, Coordinators(cluster))


def open_transaction(options: WriteOptions, query: QueryName, batch_id: int | None = None) -> WriteTransaction | None:
    """Fences earlier drivers with this name and aborts their open transactions.

    None if the brokers do not support exactly-once delivery and it was not requested explicitly.
    """
    return client_thread.run(_explained(options, "open", lambda: _open(options, query, batch_id)))


def commit(
    options: WriteOptions, transaction: WriteTransaction, messages: Sequence[Written], batch_id: int | None
) -> None:
    """Returns when the rows are committed, and with them the batch id."""
    client_thread.run(_explained(options, "commit", lambda: _commit(options, transaction, messages, batch_id)))


def abort(options: WriteOptions, transaction: WriteTransaction) -> None:
    """Optional, to release readers early: the next driver and the transaction timeout also abort it."""
    try:
        client_thread.run(_explained(options, "abort", lambda: _abort(options, transaction)))
    except SourceError as error:
        logger.warning("transaction not aborted, left to its timeout reason=%s", error)


async def _open(options: WriteOptions, query: QueryName, batch_id: int | None) -> WriteTransaction | None:
    group = _group(options, query.name)
    if await group.is_supported():
        return GroupTransaction(query.name, await group.open(), query.query_id, batch_id)
    if options.is_best_effort:
        logger.info("delivery is at least once: brokers have no transaction groups")
        return None
    identity = TransactionalIdentity(
        coordinators_of(_cluster(options)),
        query.name,
        timeout_s=options.client.timeout_s,
        transaction_timeout_ms=options.client.transaction_timeout_ms,
    )
    opened = await identity.initialize()
    last_batch_id = await _last_batch_id(options, query.name)
    return SharedTransaction(
        query.name, opened.producer_id, opened.producer_epoch, last_batch_id, query.query_id, batch_id
    )


def _cluster(options: WriteOptions) -> Cluster:
    return client_thread.cluster_for(options.bootstrap, options.client)


def _group(options: WriteOptions, name: str) -> TransactionGroup:
    return TransactionGroup(
        coordinators_of(_cluster(options)),
        name,
        timeout_s=options.client.timeout_s,
        transaction_timeout_ms=options.client.transaction_timeout_ms,
    )


async def _commit(
    options: WriteOptions, transaction: WriteTransaction, messages: Sequence[Written], batch_id: int | None
) -> None:
    if isinstance(transaction, GroupTransaction):
        number = NO_BATCH if batch_id is None else batch_id
        await _group(options, transaction.name).commit(transaction.opened, number, winners(messages))
        return
    producer = _shared_producer(options, transaction)
    try:
        check_one_task_each(messages)
    except NotExactlyOnce:
        await producer.abort()
        raise
    partitions = [partition for message in messages for partition in message.partitions]
    if partitions:
        if batch_id is not None:
            await producer.send_offsets({min(partitions): batch_id + 1}, GroupMember(transaction.transactional_id))
        await producer.commit()


async def _abort(options: WriteOptions, transaction: WriteTransaction) -> None:
    if isinstance(transaction, GroupTransaction):
        await _group(options, transaction.name).abort(transaction.opened)
    else:
        await _shared_producer(options, transaction).abort()


def _shared_producer(options: WriteOptions, transaction: SharedTransaction) -> TransactionalProducer:
    return TransactionalProducer.resumed(
        _cluster(options),
        SystemClock(),
        transaction.transactional_id,
        ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch, is_transactional=True),
        timeout_s=options.client.timeout_s,
    )


async def _last_batch_id(options: WriteOptions, name: str) -> int:
    """The batch id is stored as a committed offset of the group with this name, on one of the written partitions."""
    groups = GroupAdmin(_cluster(options), timeout_s=options.client.timeout_s)
    offsets = await groups.offsets(name, require_stable=True)
    return max((committed.offset - 1 for committed in offsets.values()), default=NO_BATCH)


async def _explained(options: WriteOptions, verb: str, work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except FENCING_ERRORS as error:
        raise fenced_error(options, error) from error
    except InvalidTransactionTimeout as error:
        raise NotExactlyOnce(
            f"Option 'kafka.transaction.timeout.ms' is {options.client.transaction_timeout_ms}, more than the brokers"
            " allow: reduce it, or increase their transaction.max.timeout.ms."
        ) from error
    except (KafkaError, ConnectionLost, GaveUp) as error:
        raise BrokersUnavailable(
            f"The brokers at {options.bootstrap} could not {verb} the transaction of this query: {reason_of(error)}"
        ) from error


def fenced_error(options: WriteOptions, error: Exception) -> QueryFenced:
    limit_s = options.client.transaction_timeout_ms / 1000
    return QueryFenced(
        "This query cannot write any more: another run of it has taken over, or its batch took longer than"
        f" 'kafka.transaction.timeout.ms' ({limit_s:g} s) ({reason_of(error)})."
    )
