"""Responses about one transaction: DescribeTransactions and partition verification."""

# Core: no clock, no I/O, no await.

from collections.abc import Collection

from tidelog.errors import NO_ERROR, TransactionAbortable
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tidelog.protocol.messages.describe_transactions import TopicData
from tidelog.protocol.messages.describe_transactions import TransactionState as TransactionDescription
from tidelog.transactions.transaction import Transaction
from tidelog.types import TopicPartition, indexes_by_topic


def verified(transaction: Transaction, partitions: Collection[TopicPartition]) -> AddPartitionsToTxnResult:
    """Result of a verification (KIP-890): partitions outside the transaction get TRANSACTION_ABORTABLE."""
    return AddPartitionsToTxnResult(
        transaction.transactional_id,
        [
            AddPartitionsToTxnTopicResult(
                topic,
                [
                    AddPartitionsToTxnPartitionResult(
                        index,
                        NO_ERROR
                        if TopicPartition(topic, index) in transaction.partitions
                        else TransactionAbortable.code,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in indexes_by_topic(partitions).items()
        ],
    )


def description(transaction: Transaction, partitions: frozenset[TopicPartition]) -> TransactionDescription:
    """Description with these partitions: while the transaction ends, those that lack a marker."""
    return TransactionDescription(
        error_code=NO_ERROR,
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_at_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic, indexes) for topic, indexes in indexes_by_topic(partitions).items()],
    )
