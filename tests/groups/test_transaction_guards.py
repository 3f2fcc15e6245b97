"""End markers that keep a commit of offsets out of a transaction."""

import pytest

from tidelog.errors import InvalidTxnState, NotCoordinator
from tidelog.groups.transaction_guards import OffsetCommitGuard, OffsetCommitGuards


def is_broken_by_marker(guard: OffsetCommitGuard, marker_epoch: int) -> bool:
    guards = OffsetCommitGuards()
    guards.add(guard)
    guards.on_transaction_ended(7, marker_epoch)
    try:
        guards.check(guard)
    except InvalidTxnState:
        return True
    return False


def test_any_marker_may_end_a_transaction_that_shares_its_epoch_with_others() -> None:
    assert is_broken_by_marker(OffsetCommitGuard(7), 3)


def test_the_marker_of_the_transaction_before_is_recognised_by_its_epoch() -> None:
    assert not is_broken_by_marker(OffsetCommitGuard(7, 3), 3)
    assert is_broken_by_marker(OffsetCommitGuard(7, 3), 4)
    assert is_broken_by_marker(OffsetCommitGuard(7, 2**15 - 1), 2**15 - 1)


def test_a_guard_that_was_let_go_guards_nothing() -> None:
    guards, guard = OffsetCommitGuards(), OffsetCommitGuard(7)
    guards.add(guard)
    guards.remove(guard)
    with pytest.raises(NotCoordinator):
        guards.check(guard)
