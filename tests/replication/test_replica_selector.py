"""Choice of the replica that a consumer reads from (R23, KIP-392)."""

from tests.replication.leaders import START_MS, leader_of, peers_of
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.replica_selector import preferred_read_replica


def leader_with(ends: dict[int, int], *, in_sync: tuple[int, ...] = (1, 2, 3), log_start: int = 0) -> PartitionLeader:
    """Broker 1 leads with 10 records; the others have fetched so far."""
    leader = leader_of(1, 2, 3, in_sync=in_sync, log_end=10)
    for replica, end in ends.items():
        leader.on_follower_fetch(replica, end, log_start, START_MS)
    return leader


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    assert preferred_read_replica(leader_with({2: 10, 3: 10}), {2}, 5) == 2


def test_the_leader_in_the_same_rack_is_kept() -> None:
    assert preferred_read_replica(leader_with({2: 10, 3: 10}), {1, 2}, 5) is None


def test_nobody_in_the_rack_is_the_leader() -> None:
    assert preferred_read_replica(leader_with({2: 10, 3: 10}), {7}, 5) is None


def test_the_most_caught_up_of_the_rack_is_preferred() -> None:
    assert preferred_read_replica(leader_with({2: 9, 3: 8}), {2, 3}, 5) == 2
    assert preferred_read_replica(leader_with({2: 9, 3: 9}), {2, 3}, 5) == 3


def test_a_replica_without_the_offset_is_not_preferred() -> None:
    assert preferred_read_replica(leader_with({2: 5}), {2}, 5) == 2
    assert preferred_read_replica(leader_with({2: 4}), {2}, 5) is None
    assert preferred_read_replica(leader_with({2: 10}, log_start=6), {2}, 5) is None


def test_a_replica_that_has_not_fetched_in_this_epoch_is_not_preferred() -> None:
    assert preferred_read_replica(leader_with({3: 10}), {2}, 0) is None


def test_a_replica_out_of_sync_is_not_preferred() -> None:
    assert preferred_read_replica(leader_with({2: 10}, in_sync=(1, 3)), {2}, 5) is None


def test_a_replica_whose_broker_is_gone_or_has_restarted_is_not_preferred() -> None:
    leader = leader_with({2: 10})
    leader.peers.epochs = peers_of(1, 3).epochs
    assert preferred_read_replica(leader, {2}, 5) is None
    leader.peers.epochs = {1: 7, 2: 9, 3: 8}
    leader.followers[2].broker_epoch = 6
    assert preferred_read_replica(leader, {2}, 5) is None
