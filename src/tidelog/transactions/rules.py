"""Checks of producer id and epoch in transaction requests, as in Kafka 4.3."""

# Core: no clock, no I/O, no await.

from tidelog.errors import ConcurrentTransactions, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest
from tidelog.transactions.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT
from tidelog.transactions.transaction import LAST_CLIENT_EPOCH, TV_2, ProducerIdentity, Transaction
from tidelog.types import NO_PRODUCER_ID


def expected_identity(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """Producer id and epoch that a producer claims when it requests its next epoch (KIP-360)."""
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdentity(request.producer_id, request.producer_epoch)


def check_expected(transaction: Transaction, expected: ProducerIdentity | None) -> None:
    """Check the producer id. The epoch is checked when it is incremented."""
    if transaction.state.is_prepared:
        raise still_ending()
    if expected is None or expected.producer_id == transaction.producer_id:
        return
    # The response with the new producer id may have been lost.
    is_repeated = expected.producer_id == transaction.previous_producer_id
    if not (is_repeated and expected.producer_epoch >= LAST_CLIENT_EPOCH):
        raise ProducerFenced(f"the producer id is {transaction.producer_id}, not {expected.producer_id}")


def check_owner(transaction: Transaction, expected: ProducerIdentity | None) -> None:
    """A producer with an expected identity aborts only its own open transaction. Kafka lets older epochs do it too."""
    if expected is not None and expected != transaction.identity:
        raise ProducerFenced(f"the epoch is {transaction.producer_epoch}, not {expected.producer_epoch}")


def needs_new_producer_id(transaction: Transaction, expected: ProducerIdentity | None) -> bool:
    return transaction.is_epoch_exhausted and (
        expected is None or expected.producer_epoch == transaction.producer_epoch
    )


def check_producer(transaction: Transaction | None, identity: ProducerIdentity) -> Transaction:
    """Only the current producer adds to a transaction, and only before it is decided."""
    if transaction is not None:
        _check_not_ending(transaction, identity)
    if transaction is None or transaction.producer_id != identity.producer_id:
        raise InvalidProducerIdMapping
    if transaction.producer_epoch != identity.producer_epoch:
        raise ProducerFenced(f"the epoch is {transaction.producer_epoch}, not {identity.producer_epoch}")
    if transaction.state.is_prepared:
        raise still_ending()
    return transaction


def _check_not_ending(transaction: Transaction, identity: ProducerIdentity) -> None:
    """While markers are written, the producer already uses its next epoch or producer id."""
    if transaction.state.is_prepared and transaction.next_identity == identity:
        raise still_ending()


def still_ending() -> ConcurrentTransactions:
    return ConcurrentTransactions("the previous transaction is still ending")


def should_end(transaction: Transaction, identity: ProducerIdentity, *, is_commit: bool, client_version: int) -> bool:
    """True if the request ends the transaction; False if it has ended that way already. Raises the error otherwise."""
    if client_version >= TV_2:
        return _has_to_end_epoch(transaction, identity, is_commit=is_commit)
    if transaction.producer_id != identity.producer_id:
        raise InvalidProducerIdMapping
    if transaction.producer_epoch != identity.producer_epoch:
        raise ProducerFenced(f"the epoch is {transaction.producer_epoch}, not {identity.producer_epoch}")
    if transaction.state is ONGOING:
        return True
    if transaction.state is EMPTY:
        raise _wrong_state(transaction, is_commit=is_commit)
    return _is_repeated_end(transaction, is_commit=is_commit)


def is_repeated_identity(transaction: Transaction, identity: ProducerIdentity) -> bool:
    """True for the identity that the transaction had before its end incremented or exhausted the epoch (KIP-890)."""
    if transaction.producer_id == identity.producer_id:
        return transaction.producer_epoch == identity.producer_epoch + 1
    return (
        transaction.state.is_completed
        and transaction.previous_producer_id == identity.producer_id
        and identity.producer_epoch == LAST_CLIENT_EPOCH
        and transaction.producer_epoch == 0
    )


def _has_to_end_epoch(transaction: Transaction, identity: ProducerIdentity, *, is_commit: bool) -> bool:
    """True if the transaction of this epoch has yet to be ended; False if it was, and the request is a repetition.

    With KIP-890, every transaction has its own epoch, which identifies the transaction that the request means.
    """
    _check_not_ending(transaction, identity)
    is_repeated = is_repeated_identity(transaction, identity)
    if transaction.producer_id != identity.producer_id and not is_repeated:
        raise InvalidProducerIdMapping
    is_current = transaction.identity == identity
    if not (
        (is_current and not transaction.state.is_prepared)
        or (is_repeated and (transaction.state.is_prepared or transaction.state.is_completed))
    ):
        raise ProducerFenced(f"the epoch is {transaction.producer_epoch}, not {identity.producer_epoch}")
    if transaction.state is ONGOING:
        return True
    if is_repeated:
        return _is_repeated_end(transaction, is_commit=is_commit)
    if is_commit:
        raise _wrong_state(transaction, is_commit=is_commit)
    return True  # nothing was begun: the abort gives the producer its next epoch


def _is_repeated_end(transaction: Transaction, *, is_commit: bool) -> bool:
    if (transaction.state in (PREPARE_COMMIT, COMPLETE_COMMIT)) != is_commit:
        raise _wrong_state(transaction, is_commit=is_commit)
    if transaction.state.is_prepared:
        raise ConcurrentTransactions("the end of the transaction is being written")
    return False


def _wrong_state(transaction: Transaction, *, is_commit: bool) -> InvalidTxnState:
    wish = "commit" if is_commit else "abort"
    return InvalidTxnState(f"{transaction.transactional_id} is {transaction.state.label}: there is nothing to {wish}")
