"""DescribeTransactions (API key 65): describes transactions by transactional id."""

from tidelog.errors import KafkaError
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

    return begin_each(request.transactional_ids, lambda each: _describe(each, context), finish, context)


def _describe(transactional_id: str, context: RequestContext) -> Deferred[DescribeTransactionsResponse]:
    reply = Deferred(lambda error: _rejected(transactional_id, error))
    context.services.transactions.describe(transactional_id, reply)
    return reply


def _rejected(transactional_id: str, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[TransactionState(error_code=error.code, transactional_id=transactional_id)]
    )
