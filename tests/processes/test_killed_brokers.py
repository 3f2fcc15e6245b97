"""Brokers die by kill -9 while a producer writes: nothing acknowledged is lost, and who comes back catches up."""

import time

import pytest

from tests.processes.cluster import BROKERS, Cluster, wait_for
from tests.processes.load import under_load

SHORTER_THAN_A_SESSION_S = 0.5


def test_leader_is_killed(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        leader, epoch = load.state().leader, load.state().leader_epoch
        cluster.brokers[leader].kill()
        load.wait_until_others_lead(leader)
        load.wait_until_out_of_sync(leader)
        assert load.state().leader_epoch > epoch
        load.writer.wait_for_more()
        cluster.start([leader])
        load.wait_until_whole()


def test_leader_is_killed_with_records_that_only_it_has(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        leader = load.leader()
        followers = [cluster.brokers[broker_id] for broker_id in BROKERS if broker_id != leader]
        for follower in followers:
            follower.pause()
        sent = len(load.writer.sent[0])
        time.sleep(SHORTER_THAN_A_SESSION_S)
        # What was under way when they stopped may have been acknowledged; nothing that was sent since.
        assert load.writer.count(0) <= sent
        assert len(load.writer.sent[0]) > sent
        cluster.brokers[leader].kill()
        for follower in followers:
            follower.wake()
        load.wait_until_others_lead(leader)
        load.writer.wait_for_more()
        cluster.start([leader])
        load.wait_until_whole()


def test_follower_is_killed(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        leader = load.leader()
        follower = next(broker_id for broker_id in BROKERS if broker_id not in (leader, cluster.controller))
        cluster.brokers[follower].kill()
        load.wait_until_out_of_sync(follower)
        assert load.leader() == leader
        load.writer.wait_for_more()
        cluster.start([follower])
        load.wait_until_whole()


def test_controller_is_killed(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        controller = cluster.controller
        assert controller is not None
        cluster.brokers[controller].kill()
        wait_for(lambda: cluster.controller not in (None, controller), lambda: "no other broker became controller")
        load.wait_until_others_lead(controller)
        load.wait_until_out_of_sync(controller)
        load.writer.wait_for_more()
        cluster.start([controller])
        load.wait_until_whole()


def test_all_are_killed_at_once(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        for broker in cluster.brokers.values():
            broker.kill()
        cluster.start()
        load.writer.wait_for_more()
        load.wait_until_whole()


@pytest.mark.parametrize("coordination", ["sqlite"], indirect=True)
def test_one_after_the_other_is_killed(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        for broker_id in BROKERS:
            cluster.brokers[broker_id].kill()
            load.writer.wait_for_more(5)
            cluster.start([broker_id])
            load.wait_until_whole()
