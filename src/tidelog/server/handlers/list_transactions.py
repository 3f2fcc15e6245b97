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
from tidelog.server.dispatch import RequestContext
from tidelog.transactions.states import STATES_BY_LABEL
from tidelog.transactions.transaction import Transaction


def handle_list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    try:
        matches = _filter(request, context.services.clock.now_ms())
        found = [each for each in context.services.transactions.transactions() if matches(each)]
        found = _matching(request.transactional_id_pattern, found)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    names = (each.transactional_id for each in found)
    denied = context.denied(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names, is_logged=False)
    return ListTransactionsResponse(
        error_code=NO_ERROR,
        unknown_state_filters=[label for label in request.state_filters if label not in STATES_BY_LABEL],
        transaction_states=[
            TransactionState(each.transactional_id, each.producer_id, each.state.label)
            for each in found
            if each.transactional_id not in denied
        ],
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


def _matching(pattern: str | None, transactions: list[Transaction]) -> list[Transaction]:
    if not pattern:
        return transactions
    try:
        matching = TopicPattern(pattern).matching(each.transactional_id for each in transactions)
    except InvalidExpression as error:
        raise InvalidRegularExpression(str(error)) from error
    return [each for each in transactions if each.transactional_id in matching]
