"""DescribeTransactions: transactions by their ids."""

from collections.abc import Coroutine, Sequence
from typing import Any

from tidelog.errors import KafkaError
from tidelog.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidelog.server.dispatch import Call
from tidelog.server.outcome import Deferred
from tidelog.server.replies import DeferredReply


def handle_describe_transactions(
    request: DescribeTransactionsRequest, call: Call
) -> Coroutine[Any, Any, DescribeTransactionsResponse]:
    return _answer([_describe(transactional_id, call) for transactional_id in request.transactional_ids])


async def _answer(begun: Sequence[Deferred[DescribeTransactionsResponse]]) -> DescribeTransactionsResponse:
    states = [state for each in begun for state in (await each.wait()).transaction_states]
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(transactional_id: str, call: Call) -> Deferred[DescribeTransactionsResponse]:
    reply = DeferredReply(lambda error: _refused(transactional_id, error))
    call.services.transactions.describe(transactional_id, reply)
    return reply.deferred


def _refused(transactional_id: str, error: KafkaError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[TransactionState(error_code=error.code, transactional_id=transactional_id)]
    )
