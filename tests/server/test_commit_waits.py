"""An append with acks=all counts only for the leadership that took it (R14)."""

from tests.replication.leaders import Replicas, assignment_of, fetch_as_follower
from tests.replication.test_partition import produce, replicate, with_replicas
from tidelog.errors import NotLeaderOrFollower
from tidelog.replication.partition import ACKS_ALL
from tidelog.server.commit_waits import CommitWait


def test_a_write_is_not_acknowledged_by_another_leadership_of_the_same_broker() -> None:
    """Between two checks the broker lost its leadership and the record, and leads again: another record is there."""

    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, epoch=1))
        partition = replicas.orders()
        produce(partition, b"mine", ACKS_ALL)
        wait = CommitWait(partition, partition.log.log_end_offset)
        assert not wait.is_over()
        replicas.take(assignment_of(1, 2, leader=2, epoch=2))
        partition.truncate_to(0, leader_epoch=2)
        replicate(partition, b"another", epoch=2)
        replicas.take(assignment_of(1, 2, epoch=3))
        assert wait.is_over(), "nobody waits for a record that is gone"
        fetch_as_follower(partition, 2, 1, 0, 0)
        assert partition.log.high_watermark == 1
        assert isinstance(wait.failure(), NotLeaderOrFollower)

    with_replicas(scenario)


def test_a_write_is_acknowledged_if_its_leader_stays_while_the_epoch_grows() -> None:
    async def scenario(replicas: Replicas) -> None:
        replicas.take(assignment_of(1, 2, epoch=1))
        partition = replicas.orders()
        produce(partition, b"mine", ACKS_ALL)
        wait = CommitWait(partition, partition.log.log_end_offset)
        replicas.take(assignment_of(1, 2, epoch=2))
        assert not wait.is_over()
        fetch_as_follower(partition, 2, 1, 0, 0)
        assert (wait.is_over(), wait.failure()) == (True, None)

    with_replicas(scenario)
