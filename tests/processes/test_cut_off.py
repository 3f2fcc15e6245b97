"""A broker that is cut off from its peers or from the store, but not from its clients."""

import pytest

from tests.processes.cluster import BROKERS, Cluster
from tests.processes.load import PARTITIONS, TOPIC, under_load
from tests.processes.roads import STORE
from tests.processes.straight import ACKS, write_straight
from tidelog.errors import NotLeaderOrFollower


def cut_off_from_peers(cluster: Cluster, cut_off: int) -> None:
    """It goes on ruling what it ruled; it acknowledges nothing with acks=all that only it has."""
    with under_load(cluster) as load:
        its_own = load.led_by(cut_off)
        others = [partition for partition in range(PARTITIONS) if partition not in its_own]
        cluster.roads.cut(cut_off, *(peer for peer in BROKERS if peer != cut_off))
        load.wait_until_out_of_sync(cut_off, others)
        load.writer.wait_for_more(partitions=others)
        for partition in its_own:
            cluster.wait_for_state(TOPIC, partition, lambda found: found.in_sync == {cut_off})
        acknowledged = {partition: load.writer.count(partition) for partition in its_own}
        load.writer.wait_for_more(partitions=others)
        assert acknowledged == {partition: load.writer.count(partition) for partition in its_own}
        cluster.roads.mend()
        load.writer.wait_for_more()
        load.wait_until_whole()


def test_broker_is_cut_off_from_its_peers(cluster: Cluster) -> None:
    cut_off_from_peers(cluster, next(broker_id for broker_id in BROKERS if broker_id != cluster.controller))


def test_controller_is_cut_off_from_its_peers(cluster: Cluster) -> None:
    assert cluster.controller is not None
    cut_off_from_peers(cluster, cluster.controller)


@pytest.mark.parametrize("coordination", ["zookeeper"], indirect=True)
def test_leader_is_cut_off_from_the_store(cluster: Cluster) -> None:
    """Brokers on SQLite are on one machine with their store: they can be stopped, but not cut off."""
    with under_load(cluster) as load:
        leader = load.leader()
        cluster.roads.cut(leader, STORE)
        load.wait_until_others_lead(leader)
        assert write_straight(cluster.address(leader), 0) == [NotLeaderOrFollower.code] * len(ACKS)
        load.writer.wait_for_more()
        cluster.roads.mend()
        load.wait_until_whole()
