"""ListTransactions (API key 66): lists the transactions that this broker coordinates."""

from collections.abc import Callable

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.errors import NO_ERROR, InvalidRegularExpression, KafkaError
from tidelog.groups.consumer.expression_parser import InvalidExpression
from tidelog.groups.consumer.regular_expressions import TopicPattern
from tidelog.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from tidelog.runtime.turns import Turns
from tidelog.server.dispatch import RequestContext
from tidelog.transactions.states import STATES_BY_LABEL
from tidelog.transactions.transaction import Transaction

MATCHED_AT_ONCE = 200
"""Transactional ids, of at most 32 KB each."""


async def handle_list_transactions(
    request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    turns = context.services.turns
    try:
        matches = _filter(request, context.services.clock.now_ms())
        transactions = list(context.services.transactions.transactions())
        found = [each for each in await turns.each(transactions, lambda each: each if matches(each) else None) if each]
        found = await _matching(request.transactional_id_pattern, found, turns)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)

    def listed(transaction: Transaction) -> TransactionState | None:
        name = transaction.transactional_id
        if context.is_denied(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, is_logged=False):
            return None
        return TransactionState(name, transaction.producer_id, transaction.state.label)

    return ListTransactionsResponse(
        error_code=NO_ERROR,
        unknown_state_filters=[label for label in request.state_filters if label not in STATES_BY_LABEL],
        transaction_states=[state for state in await turns.each(found, listed) if state is not None],
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    """An empty filter matches everything, a filter with unknown states only matches nothing."""
    states = {STATES_BY_LABEL[label] for label in request.state_filters if label in STATES_BY_LABEL}
    producer_ids = frozenset(request.producer_id_filters)

    def matches(transaction: Transaction) -> bool:
        return (
            (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (request.duration_filter < 0 or now_ms - transaction.started_at_ms > request.duration_filter)
        )

    return matches


async def _matching(pattern: str | None, transactions: list[Transaction], turns: Turns) -> list[Transaction]:
    if not pattern:
        return transactions
    found: list[Transaction] = []
    try:
        compiled = TopicPattern(pattern)
        for first in range(0, len(transactions), MATCHED_AT_ONCE):
            some = transactions[first : first + MATCHED_AT_ONCE]
            matching = compiled.matching(each.transactional_id for each in some)
            found += [each for each in some if each.transactional_id in matching]
            await turns.yield_turn()
    except InvalidExpression as error:
        raise InvalidRegularExpression(str(error)) from error
    return found
