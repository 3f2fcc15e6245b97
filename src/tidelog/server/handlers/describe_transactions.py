"""DescribeTransactions (API key 65): describes transactions by transactional id."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import KafkaError, TransactionalIdAuthorizationFailed
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import RequestContext
from tidelog.server.sliced_requests import Promised, begin_each


def handle_describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> Promised[DescribeTransactionsResponse]:
    def finish(parts: list[DescribeTransactionsResponse]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[state for part in parts for state in part.transaction_states]
        )

    # Once each: a request can name a transaction of thousands of partitions thousands of times.
    distinct = dict.fromkeys(request.transactional_ids)
    return begin_each(distinct, lambda each: _describe(each, context), finish, context)


def _describe(transactional_id: str, context: RequestContext) -> Deferred[DescribeTransactionsResponse]:
    reply = Deferred(lambda error: _rejected(transactional_id, error))
    if context.is_denied(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        reply.fail(TransactionalIdAuthorizationFailed())
        return reply
    context.services.transactions.describe(transactional_id, reply)
    if context.services.authorizer is None:
        return reply
    return reply.map(lambda response: _without_denied_topics(response, context))


def _without_denied_topics(
    response: DescribeTransactionsResponse, context: RequestContext
) -> DescribeTransactionsResponse:
    for state in response.transaction_states:
        names = (topic.topic for topic in state.topics)
        denied = context.denied(Operation.DESCRIBE, ResourceType.TOPIC, names)
        state.topics = [topic for topic in state.topics if topic.topic not in denied]
    return response


def _rejected(transactional_id: str, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[TransactionState(error_code=error.code, transactional_id=transactional_id)]
    )
