"""DescribeTransactions: transactions by their ids."""

from tidelog.errors import KafkaError
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.runtime.deferred import Deferred
from tidelog.server.dispatch import Call
from tidelog.server.sliced_requests import Promised, begin_each


def handle_describe_transactions(
    request: DescribeTransactionsRequest, call: Call
) -> Promised[DescribeTransactionsResponse]:
    def finish(parts: list[DescribeTransactionsResponse]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=[state for part in parts for state in part.transaction_states]
        )

    return begin_each(request.transactional_ids, lambda each: _describe(each, call), finish, call)


def _describe(transactional_id: str, call: Call) -> Deferred[DescribeTransactionsResponse]:
    reply = Deferred(lambda error: _refused(transactional_id, error))
    call.services.transactions.describe(transactional_id, reply)
    return reply


def _refused(transactional_id: str, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[TransactionState(error_code=error.code, transactional_id=transactional_id)]
    )
