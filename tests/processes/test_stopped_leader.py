"""A leader that is stopped (SIGSTOP) past its session and wakes up: nothing it then does counts."""

from tests.processes.cluster import Cluster, wait_for
from tests.processes.load import PARTITIONS, under_load
from tests.processes.straight import ACKS, write_straight
from tidelog.errors import NotLeaderOrFollower


def test_leader_that_wakes_up_too_late_acknowledges_nothing(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        leader = load.leader()
        broker = cluster.brokers[leader]
        others = [partition for partition in range(PARTITIONS) if partition not in load.led_by(leader)]

        def sleep_too_long() -> None:
            cluster.pause(leader)
            load.wait_until_others_lead(leader)
            load.writer.wait_for_more(partitions=others)

        # They stand in the socket when it wakes up: it reads them before any of its timers has run.
        responses = write_straight(cluster.address(leader), 0, before=sleep_too_long, after=broker.wake)
        assert responses == [NotLeaderOrFollower.code] * len(ACKS)
        load.wait_until_whole()


def test_controller_that_wakes_up_too_late_rules_nothing(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        controller = cluster.controller
        assert controller is not None
        cluster.pause(controller)
        wait_for(lambda: cluster.controller not in (None, controller), lambda: "no other broker became controller")
        load.wait_until_others_lead(controller)
        successor = cluster.controller
        cluster.brokers[controller].wake()
        load.wait_until_whole()
        assert cluster.controller == successor
