import pytest

from tests.server.harness import batch_of
from tidelog.errors import NotEnoughReplicas, NotLeaderOrFollower
from tidelog.protocol.record_batch import MAX_SEQUENCE, BatchHeader, read_header
from tidelog.server.refused_batches import MAX_REFUSED, ClientPartition, RefusedBatches
from tidelog.storage.producer_state import ProducerStateManager

ORDERS = ClientPartition("orders", 0)


def header(sequence: int, *, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return read_header(batch_of(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def producers(*sequences: int) -> ProducerStateManager:
    """A log in which the producer has written these."""
    found = ProducerStateManager()
    for offset, sequence in enumerate(sequences):
        found.update(header(sequence), offset)
    return found


def refused_at(sequence: int) -> RefusedBatches:
    refused = RefusedBatches()
    refused.add(ORDERS, header(sequence), NotEnoughReplicas("one of two"))
    return refused


def test_batches_behind_a_refused_one_get_its_error_until_it_is_sent_again() -> None:
    refused, log = refused_at(3), producers(2)
    for sequence in (4, 5):
        with pytest.raises(NotEnoughReplicas, match="a batch before it was refused: one of two"):
            refused.check(ORDERS, header(sequence), log)
    refused.check(ORDERS, header(3), log)
    refused.check(ORDERS, header(4), log)


def test_a_producer_that_the_log_does_not_know_does_not_begin_in_the_middle() -> None:
    with pytest.raises(NotEnoughReplicas):
        refused_at(0).check(ORDERS, header(1), producers())


def test_the_first_of_several_refused_ones_counts() -> None:
    refused, log = refused_at(3), producers(2)
    refused.add(ORDERS, header(4), NotLeaderOrFollower())
    with pytest.raises(NotEnoughReplicas):
        refused.check(ORDERS, header(4), log)


def test_a_producer_that_has_given_the_refused_batch_up_is_left_to_the_log() -> None:
    """It sends the batches behind it again, and not that one."""
    refused, log = refused_at(3), producers(2)
    for sequence in (4, 5, 6, 7, 8, 9):
        with pytest.raises(NotEnoughReplicas):
            refused.check(ORDERS, header(sequence), log)
    refused.check(ORDERS, header(4), log)
    assert not refused.by_producer


def test_five_batches_behind_one_that_was_written_elsewhere_keep_their_order() -> None:
    """Its producer came back over the same connection, to a log that does not know it any more."""
    refused, log = refused_at(3), producers()
    for sequence in range(50, 55):
        with pytest.raises(NotEnoughReplicas):
            refused.check(ORDERS, header(sequence), log)
    refused.check(ORDERS, header(50), log)
    refused.check(ORDERS, header(51), log)


def test_an_earlier_batch_that_is_refused_later_counts() -> None:
    refused, log = refused_at(3), producers()
    refused.add(ORDERS, header(2), NotLeaderOrFollower())
    with pytest.raises(NotLeaderOrFollower):
        refused.check(ORDERS, header(3), log)


def test_a_refused_batch_of_another_epoch_replaces_that_of_the_last_one() -> None:
    refused, log = refused_at(5), producers()
    refused.add(ORDERS, header(0, epoch=1), NotLeaderOrFollower())
    with pytest.raises(NotLeaderOrFollower):
        refused.check(ORDERS, header(1, epoch=1), log)


def test_others_are_not_affected() -> None:
    refused, log = refused_at(3), producers(2)
    refused.check(ORDERS, header(4, producer_id=8), log)
    refused.check(ClientPartition("orders", 1), header(4), log)
    refused.check(ORDERS, header(0, epoch=1), log)
    assert len(refused.by_producer) == 0, "another epoch begins anew"


def test_a_batch_that_the_log_expects_is_taken() -> None:
    """The refused one was written by way of another connection."""
    refused_at(3).check(ORDERS, header(4), producers(2, 3))
    refused_at(3).check(ORDERS, header(4), producers(2, 3, 4))


def test_earlier_batches_that_are_sent_again_leave_it_refused() -> None:
    refused, log = refused_at(3), producers(1, 2)
    refused.check(ORDERS, header(2), log)
    with pytest.raises(NotEnoughReplicas):
        refused.check(ORDERS, header(4), log)


def test_sequences_wrap() -> None:
    refused, log = refused_at(MAX_SEQUENCE), producers(MAX_SEQUENCE - 1)
    refused.check(ORDERS, header(MAX_SEQUENCE - 1), log)
    with pytest.raises(NotEnoughReplicas):
        refused.check(ORDERS, header(0), log)


def test_a_connection_remembers_so_many_and_none_without_a_producer() -> None:
    refused = RefusedBatches()
    refused.add(ORDERS, header(-1, epoch=-1, producer_id=-1), NotEnoughReplicas())
    refused.add(ClientPartition("x" * 250, 0), header(0), NotEnoughReplicas())
    assert not refused.by_producer
    for producer_id in range(MAX_REFUSED + 5):
        refused.add(ORDERS, header(3, producer_id=producer_id), NotEnoughReplicas())
    assert len(refused.by_producer) == MAX_REFUSED
    refused.check(ORDERS, header(4, producer_id=0), producers())
    with pytest.raises(NotEnoughReplicas):
        refused.check(ORDERS, header(4, producer_id=MAX_REFUSED), producers())
