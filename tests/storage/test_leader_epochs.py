from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import OffsetOutOfRange
from tidelog.storage.leader_epochs import EpochEnd, EpochEntry, LeaderEpochs

NONE = EpochEnd(-1, -1)


def epochs(*starts: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochEntry(*start) for start in starts])


def test_an_epoch_ends_where_the_next_known_one_starts() -> None:
    known = epochs((1, 0), (3, 10), (4, 25))
    assert known.end_offset_for(1, log_end_offset=40) == (1, 10)
    assert known.end_offset_for(3, log_end_offset=40) == (3, 25)
    assert known.end_offset_for(4, log_end_offset=40) == (4, 40)


def test_of_an_unknown_epoch_the_largest_before_it_answers() -> None:
    known = epochs((1, 0), (3, 10))
    assert known.end_offset_for(2, log_end_offset=40) == (1, 10)


def test_nothing_is_known_of_newer_epochs_or_without_any() -> None:
    assert epochs((1, 0)).end_offset_for(2, log_end_offset=40) == NONE
    assert epochs().end_offset_for(0, log_end_offset=40) == NONE
    assert epochs((1, 0)).end_offset_for(-1, log_end_offset=40) == NONE


def test_an_epoch_older_than_all_known_ended_where_they_start() -> None:
    assert epochs((3, 10)).end_offset_for(1, log_end_offset=40) == (1, 10)


def test_a_leader_without_an_append_is_on_record() -> None:
    """KAFKA-7415."""
    known = epochs((1, 0))
    known.assign(2, 30)
    assert known.end_offset_for(1, log_end_offset=30) == (1, 30)
    known.assign(3, 30)
    assert known.starts == ((1, 0), (3, 30))


def test_epochs_never_go_back() -> None:
    known = epochs((5, 10))
    known.is_unsynced = False
    known.assign(4, 20)
    known.assign(5, 20)
    assert known.starts == ((5, 10),)
    assert not known.is_unsynced


def test_a_reader_whose_last_epoch_ended_earlier_here_has_diverged() -> None:
    """KIP-595: its epoch ends here before the offset that it asks for, or was never heard of here."""
    known = epochs((1, 0), (3, 10), (4, 25))
    assert known.diverging_epoch(3, 25, log_end_offset=40) is None
    assert known.diverging_epoch(3, 26, log_end_offset=40) == (3, 25)
    assert known.diverging_epoch(2, 8, log_end_offset=40) == (1, 10)
    assert known.diverging_epoch(4, 40, log_end_offset=40) is None


def test_a_reader_that_names_no_epoch_has_not_diverged() -> None:
    assert epochs((1, 0)).diverging_epoch(-1, 99, log_end_offset=40) is None


@pytest.mark.parametrize("known", [epochs(), epochs((1, 0))])
def test_an_epoch_that_is_newer_than_all_known_is_out_of_range(known: LeaderEpochs) -> None:
    with pytest.raises(OffsetOutOfRange):
        known.diverging_epoch(2, 8, log_end_offset=40)


def test_truncation_from_the_end_forgets_epochs_that_start_there() -> None:
    """KAFKA-10706: also when the log itself has nothing to cut."""
    known = epochs((1, 0), (2, 10), (3, 20))
    known.truncate_from_end(20)
    assert known.starts == ((1, 0), (2, 10))
    assert known.latest_epoch == 2
    known.truncate_from_end(0)
    assert known.latest_epoch == -1


def test_truncation_from_the_start_keeps_the_epoch_that_covers_it() -> None:
    known = epochs((1, 0), (2, 10), (3, 20))
    known.truncate_from_start(15)
    assert known.starts == ((2, 15), (3, 20))
    known.truncate_from_start(20)
    assert list(known.starts) == [(3, 20)]
    known.truncate_from_start(5)
    assert list(known.starts) == [(3, 20)]


def test_the_epoch_of_an_offset() -> None:
    known = epochs((1, 5), (2, 10))
    assert [known.epoch_at(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 100))), st.integers(0, 120))
def test_starts_always_grow_and_truncation_leaves_none_behind(assigned: list[tuple[int, int]], end: int) -> None:
    known = LeaderEpochs()
    for epoch, start_offset in assigned:
        known.assign(epoch, start_offset)
    starts = known.starts
    assert all(one.epoch < two.epoch and one.start_offset < two.start_offset for one, two in pairwise(starts))
    known.truncate_from_end(end)
    assert all(start.start_offset < end for start in known.starts)
