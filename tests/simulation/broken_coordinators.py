"""Rules of groups and transactions, each taken out of the product for the length of a block: they must be missed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.committed_offsets import CommittedOffsets
from tidelog.groups.consumer import reconciliation
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.replicated.machine import Effects
from tidelog.storage.log import Log
from tidelog.transactions.state_manager import MarkerOrder, TransactionStateManager
from tidelog.transactions.transaction import Transaction


@contextmanager
def open_transactions_are_read() -> Iterator[None]:
    """Reads of committed records return all that is replicated."""
    with patch.object(Log, "last_stable_offset", property(lambda self: self.high_watermark)):
        yield


@contextmanager
def aborted_offsets_count() -> Iterator[None]:
    end_transaction = CommittedOffsets.end_transaction

    def commit_in_any_case(self: CommittedOffsets, producer_id: int, *, is_committed: bool) -> None:
        end_transaction(self, producer_id, is_committed=True)

    with patch.object(CommittedOffsets, "end_transaction", commit_in_any_case):
        yield


@contextmanager
def pending_offsets_are_overlooked() -> Iterator[None]:
    """As before KIP-447: who asks how far the group has come does not wait for transactions that go on."""
    with patch.object(CommittedOffsets, "has_transactions", lambda self, group_id: False):
        yield


@contextmanager
def anybody_commits() -> Iterator[None]:
    """Offsets of a member that was replaced are taken."""

    def check_nothing(*_: Any, **__: Any) -> None:
        pass

    with (
        patch.object(ClassicGroup, "check_offset_commit", check_nothing),
        patch.object(ConsumerGroup, "check_offset_commit", check_nothing),
    ):
        yield


@contextmanager
def partitions_are_given_twice() -> Iterator[None]:
    """A member gets a partition while another one has not given it up."""
    with patch.object(reconciliation, "_still_owns", lambda owned, holdings: False):
        yield


@contextmanager
def no_epoch_of_its_own() -> Iterator[None]:
    """KIP-890: the next transaction has the epoch of the one before, and what was meant for that one goes into it."""
    prepared = Transaction.prepared

    def prepared_in_the_same_epoch(self: Transaction, *arguments: Any, **named: Any) -> Transaction:
        return replace(prepared(self, *arguments, **named), producer_epoch=self.producer_epoch)

    with patch.object(Transaction, "prepared", prepared_in_the_same_epoch):
        yield


@contextmanager
def markers_before_the_decision_is_committed() -> Iterator[None]:
    order_markers = TransactionStateManager.order_markers

    def send_at_once(self: TransactionStateManager, order: MarkerOrder, effects: Effects) -> None:
        order_markers(self, order, effects)
        effects.after_commit.pop()(effects)

    with patch.object(TransactionStateManager, "order_markers", send_at_once):
        yield
