"""A transactional producer as its broker knows it: the requests that it sends."""

import time
from collections.abc import Sequence

from compat.answers.conversation import Conversation, wait_until
from compat.answers.coordinators import GROUP, TRANSACTION, find_coordinators
from tidelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tidelog.protocol.messages.end_txn import EndTxnRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.protocol.records import Record, build_batch

TIMEOUT_MS = 60_000
CONCURRENT_TRANSACTIONS = 51
NOBODY = 987_654_321
INIT_VERSIONS = range(6)
FIRST_VERSION_2 = {"end": 5, "offsets": 5, "produce": 12}
"""The first versions by which a client says that it speaks transactions of version 2 (KIP-890)."""


class Writer:
    """A transactional producer as its broker knows it."""

    def __init__(self, talk: Conversation, name: str) -> None:
        self._talk = talk
        self.transactional_id = talk.fresh(name)
        self.producer_id = -1
        self.epoch = -1
        self._sequence = 0
        self.begin(name)

    def begin(self, name: str) -> None:
        """As a producer that starts: a new epoch."""
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS)
        found = self._talk.ask_quietly(request, 5, InitProducerIdResponse)
        while found.error_code == CONCURRENT_TRANSACTIONS:
            found = self._talk.ask_quietly(request, 5, InitProducerIdResponse)
        assert found.error_code == 0, found
        self.producer_id, self.epoch = found.producer_id, found.producer_epoch
        self._sequence = 0
        self._talk.name_producer(self.producer_id, name)

    def add(self, *topics: tuple[str, Sequence[int]], producer_id: int | None = None, epoch: int | None = None,
            transactional_id: str | None = None) -> AddPartitionsToTxnRequest:  # fmt: skip
        """In the form of versions up to 3."""
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id if transactional_id is None else transactional_id,
            v3_and_below_producer_id=self.producer_id if producer_id is None else producer_id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, list(partitions)) for name, partitions in topics],
        )

    def verify(self, *topics: tuple[str, Sequence[int]], epoch: int | None = None, only: bool = True,
               producer_id: int | None = None) -> AddPartitionsToTxnTransaction:  # fmt: skip
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            verify_only=only,
            topics=[AddPartitionsToTxnTopic(name, list(partitions)) for name, partitions in topics],
        )

    def add_offsets(
        self, group: str, *, epoch: int | None = None, producer_id: int | None = None
    ) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            group_id=group,
        )

    def end(self, *, committed: bool = True, epoch: int | None = None, producer_id: int | None = None) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=committed,
        )

    def commit_offset(
        self, group: str, topic: str, partition: int = 0, *, epoch: int | None = None, producer_id: int | None = None,
        generation: int = -1, member_id: str = "", instance_id: str | None = None, metadata: str = "",
    ) -> TxnOffsetCommitRequest:  # fmt: skip
        place = TxnOffsetCommitRequestPartition(partition, 5, committed_metadata=metadata)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[place])],
        )

    def produce(
        self, topic: str, partition: int = 0, *, epoch: int | None = None, producer_id: int | None = None,
        sequence: int | None = None, transactional_id: str | None = "own", is_transactional: bool = True,
    ) -> ProduceRequest:  # fmt: skip
        batch = build_batch(
            [Record(0, int(time.time() * 1000), None, b"value")],
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self._sequence if sequence is None else sequence,
            is_transactional=is_transactional,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, memoryview(batch))])
        named = self.transactional_id if transactional_id == "own" else transactional_id
        return ProduceRequest(transactional_id=named, acks=-1, timeout_ms=30_000, topic_data=[data])

    def wrote(self) -> None:
        self._sequence += 1

    def wait_until_ended(self) -> None:
        def is_ended() -> bool:
            request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
            [found] = self._talk.ask_quietly(request, 0, DescribeTransactionsResponse).transaction_states
            return not found.transaction_state.startswith(("Prepare", "Ongoing"))

        wait_until(is_ended, "the transaction has ended")


def described(*transactional_ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def prepare(talk: Conversation) -> None:
    find_coordinators(talk, TRANSACTION, "somebody")
    find_coordinators(talk, GROUP, "somebody")

    def has_producer_ids() -> bool:
        return talk.ask_quietly(InitProducerIdRequest(None, TIMEOUT_MS), 5, InitProducerIdResponse).error_code == 0

    wait_until(has_producer_ids, "there are ids for producers")
