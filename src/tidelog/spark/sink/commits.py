"""What a driver does around the tasks of a batch that is written exactly once: open, commit, abort."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import Coordinators
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.group_offsets import GroupMember
from tidelog.client.pipeline import ConnectionLost
from tidelog.client.producer_batch import Identity
from tidelog.client.retries import GaveUp, reason_of
from tidelog.client.transaction_group import NO_BATCH, TransactionGroup
from tidelog.client.transactional_identity import TransactionalIdentity
from tidelog.client.transactional_producer import TransactionalProducer
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
from tidelog.spark.errors import BrokersAway, SourceError
from tidelog.spark.options.query import WriteOptions
from tidelog.spark.sink.task_messages import (
    GroupTicket,
    NotExactlyOnce,
    SharedTicket,
    Ticket,
    Written,
    check_one_task_each,
    winners,
)
from tidelog.spark.sink.transaction_names import QueryName

log = logging.getLogger(__name__)

T = TypeVar("T")

SHUT_OUT = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState, UnknownProducerId)
"""What brokers say to a driver or its tasks whose transaction is over."""


class ShutOut(SourceError):
    """Somebody else writes for the query now, or time is up."""


_coordinators: WeakKeyDictionary[Cluster, Coordinators] = WeakKeyDictionary()


def coordinators_of(cluster: Cluster) -> Coordinators:
    """Of the clusters of the client's thread, and used by it only."""
    return _coordinators.setdefault(cluster, Coordinators(cluster))


def open_ticket(options: WriteOptions, query: QueryName, batch_id: int | None = None) -> Ticket | None:
    """Earlier drivers of the name are shut out, and what they left open is aborted.

    None if the brokers cannot keep what was not asked for in so many words.
    """
    return client_thread.run(_explained(options, "open", lambda: _open(options, query, batch_id)))


def commit(options: WriteOptions, ticket: Ticket, messages: Sequence[Written], batch_id: int | None) -> None:
    """Returns when the rows count, and the batch with them."""
    client_thread.run(_explained(options, "commit", lambda: _commit(options, ticket, messages, batch_id)))


def abort(options: WriteOptions, ticket: Ticket) -> None:
    """To be quick: whoever opens the next ticket does it too, and so does time."""
    try:
        client_thread.run(_explained(options, "abort", lambda: _abort(options, ticket)))
    except SourceError as error:
        log.warning("a transaction was left to be aborted by its timeout: reason=%s", error)


# -- opening


async def _open(options: WriteOptions, query: QueryName, batch_id: int | None) -> Ticket | None:
    group = _group(options, query.name)
    if await group.is_supported():
        return GroupTicket(query.name, await group.open(), query.query_id, batch_id)
    if options.is_best_effort:
        log.info("rows are written at least once: these brokers have no transaction groups")
        return None
    identity = TransactionalIdentity(
        coordinators_of(_cluster(options)),
        query.name,
        timeout_s=options.client.timeout_s,
        transaction_timeout_ms=options.client.transaction_timeout_ms,
    )
    opened = await identity.initialize()
    last_batch_id = await _last_batch_id(options, query.name)
    return SharedTicket(query.name, opened.producer_id, opened.producer_epoch, last_batch_id, query.query_id, batch_id)


def _cluster(options: WriteOptions) -> Cluster:
    return client_thread.cluster_for(options.bootstrap, options.client)


def _group(options: WriteOptions, name: str) -> TransactionGroup:
    return TransactionGroup(
        coordinators_of(_cluster(options)),
        name,
        timeout_s=options.client.timeout_s,
        transaction_timeout_ms=options.client.transaction_timeout_ms,
    )


# -- ending


async def _commit(options: WriteOptions, ticket: Ticket, messages: Sequence[Written], batch_id: int | None) -> None:
    if isinstance(ticket, GroupTicket):
        number = NO_BATCH if batch_id is None else batch_id
        await _group(options, ticket.name).commit(ticket.opened, number, winners(messages))
        return
    producer = _shared_producer(options, ticket)
    try:
        check_one_task_each(messages)
    except NotExactlyOnce:
        await producer.abort()
        raise
    partitions = [partition for message in messages for partition in message.partitions]
    if partitions:
        if batch_id is not None:
            await producer.send_offsets({min(partitions): batch_id + 1}, GroupMember(ticket.transactional_id))
        await producer.commit()


async def _abort(options: WriteOptions, ticket: Ticket) -> None:
    if isinstance(ticket, GroupTicket):
        await _group(options, ticket.name).abort(ticket.opened)
    else:
        await _shared_producer(options, ticket).abort()


# -- one producer for all tasks


def _shared_producer(options: WriteOptions, ticket: SharedTicket) -> TransactionalProducer:
    return TransactionalProducer.resumed(
        _cluster(options),
        SystemClock(),
        ticket.transactional_id,
        Identity(ticket.producer_id, ticket.producer_epoch, is_transactional=True),
        timeout_s=options.client.timeout_s,
    )


async def _last_batch_id(options: WriteOptions, name: str) -> int:
    """The batch is the committed offset of a group of the same name, at one of the partitions written to."""
    groups = GroupAdmin(_cluster(options), timeout_s=options.client.timeout_s)
    offsets = await groups.offsets(name, require_stable=True)
    return max((committed.offset - 1 for committed in offsets.values()), default=NO_BATCH)


# -- in words


async def _explained(options: WriteOptions, verb: str, work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    except SHUT_OUT as error:
        raise shut_out(options, error) from error
    except InvalidTransactionTimeout as error:
        raise NotExactlyOnce(
            f"Option 'kafka.transaction.timeout.ms' is {options.client.transaction_timeout_ms}, more than the brokers"
            " allow: lower it, or raise their transaction.max.timeout.ms."
        ) from error
    except (KafkaError, ConnectionLost, GaveUp) as error:
        raise BrokersAway(
            f"The brokers at {options.bootstrap} could not {verb} the transaction of this query: {reason_of(error)}"
        ) from error


def shut_out(options: WriteOptions, error: Exception) -> ShutOut:
    limit_s = options.client.transaction_timeout_ms / 1000
    return ShutOut(
        "This query cannot write any more: another run of it has taken over, or its batch took longer than"
        f" 'kafka.transaction.timeout.ms' allows ({limit_s:g} s) ({reason_of(error)})."
    )
