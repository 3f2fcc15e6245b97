"""AddPartitionsToTxn (API key 24): adds partitions to transactions, or verifies that they were added.

Up to version 3 clients send one transaction. From version 4 on brokers send many, on behalf of producers that write to
a partition for the first time in a transaction (KIP-890).
"""

from collections.abc import Iterable, Mapping

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.cluster.topic_names import TRANSACTION_TOPIC, is_internal
from tidelog.errors import (
    NO_ERROR,
    ClusterAuthorizationFailed,
    KafkaError,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.coordinator_confirmation import confirmed
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import code_for_producer
from tidelog.server.sliced_requests import Promised, begin_each
from tidelog.transactions.transaction import TV_0, TV_2, ProducerIdentity
from tidelog.types import TopicPartition

KNOWS_FENCING_FROM_VERSION = 2
FROM_BROKERS_FROM_VERSION = 4


def handle_add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Promised[AddPartitionsToTxnResponse]:
    is_from_client = context.version < FROM_BROKERS_FROM_VERSION
    if not is_from_client and (
        not context.session.is_inter_broker or context.is_denied(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    ):
        return AddPartitionsToTxnResponse(error_code=ClusterAuthorizationFailed.code)
    transactions = [_only_transaction(request)] if is_from_client else request.transactions

    def finish(parts: list[AddPartitionsToTxnResponse]) -> AddPartitionsToTxnResponse:
        results = [result for part in parts for result in part.results_by_transaction]
        if is_from_client:
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
        return AddPartitionsToTxnResponse(error_code=NO_ERROR, results_by_transaction=results)

    return begin_each(transactions, lambda transaction: _begin(transaction, context), finish, context)


def _only_transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _begin(transaction: AddPartitionsToTxnTransaction, context: RequestContext) -> Deferred[AddPartitionsToTxnResponse]:
    """Start one transaction in one step; only the reply is awaited."""
    transactional_id, topics = transaction.transactional_id, transaction.topics
    partitions = _partitions(topics)

    def answer(codes: Mapping[TopicPartition, int]) -> AddPartitionsToTxnResponse:
        return _response(transactional_id, topics, codes)

    version = context.version

    def reject(error: KafkaError) -> AddPartitionsToTxnResponse:
        code = code_for_producer(error, knows_fencing=version >= KNOWS_FENCING_FROM_VERSION)
        return answer(dict.fromkeys(partitions, code))

    reply = Deferred(reject)
    if version < FROM_BROKERS_FROM_VERSION and context.is_denied(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        reply.fail(TransactionalIdAuthorizationFailed())
        return reply
    rejected = _rejections(partitions, context)
    if rejected:
        # One refused partition keeps the others out as well.
        reply.resolve(answer(dict.fromkeys(partitions, OperationNotAttempted.code) | rejected))
        return reply
    identity = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if transaction.verify_only:
        context.services.transactions.verify_partitions(transactional_id, identity, partitions, reply)
        return reply
    context.services.transactions.add_partitions(
        transactional_id,
        identity,
        partitions,
        TV_0 if version < FROM_BROKERS_FROM_VERSION else TV_2,
        answer(dict.fromkeys(partitions, NO_ERROR)),
        reply,
    )
    return confirmed(reply, context.services.transactions.partition_of(transactional_id), reject, context.services)


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _rejections(partitions: Iterable[TopicPartition], context: RequestContext) -> dict[TopicPartition, int]:
    """Clients must not write to internal topics; brokers add partitions of __consumer_offsets."""
    image, is_from_client = context.services.cluster.image, context.version < FROM_BROKERS_FROM_VERSION
    codes = {}
    denied = (
        context.denied(Operation.WRITE, ResourceType.TOPIC, (each.topic for each in partitions))
        if is_from_client
        else ()
    )
    for each in partitions:
        if each.topic in denied or each.topic == TRANSACTION_TOPIC or (is_from_client and is_internal(each.topic)):
            codes[each] = TopicAuthorizationFailed.code
        elif image.partition(each) is None:
            codes[each] = UnknownTopicOrPartition.code
    return codes


def _response(
    transactional_id: str, topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int]
) -> AddPartitionsToTxnResponse:
    """The result of one transaction in the order of the request, in the fields of version 4."""
    results = [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=[AddPartitionsToTxnResult(transactional_id, results)])
