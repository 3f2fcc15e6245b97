"""The coordination store is away for longer than a session: what can goes on, and all comes back by itself."""

import time

from tests.processes.cluster import BROKERS, Cluster, wait_for
from tests.processes.coordination import SESSION_TIMEOUT_MS
from tests.processes.history import read_from_beginning
from tests.processes.load import PARTITIONS, TOPIC, Load, under_load
from tests.processes.straight import ACKS, write_straight
from tidelog.errors import NotLeaderOrFollower

UNTIL_NOBODY_MAY_LEAD_S = SESSION_TIMEOUT_MS / 1000
AWAY_S = 1.0 + UNTIL_NOBODY_MAY_LEAD_S


def acknowledged(load: Load) -> int:
    return sum(map(load.writer.count, range(PARTITIONS)))


def test_store_is_away_and_comes_back(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        leader = load.leader()
        cluster.coordination.take_away()
        went_away = time.monotonic()
        before = acknowledged(load)
        wait_for(lambda: acknowledged(load) > before + 3, lambda: "nobody leads any more", UNTIL_NOBODY_MAY_LEAD_S)
        time.sleep(max(0, went_away + UNTIL_NOBODY_MAY_LEAD_S - time.monotonic()))
        # Somebody else might be elected behind their backs, so nobody takes writes; what is committed can be read.
        assert write_straight(cluster.address(leader), 0) == [NotLeaderOrFollower.code] * len(ACKS)
        committed = load.writer.count(0)
        assert len(read_from_beginning(cluster.bootstrap, TOPIC, 0, committed)) == committed
        time.sleep(max(0, went_away + AWAY_S - time.monotonic()))
        cluster.coordination.give_back()
        wait_for(lambda: all(map(cluster.is_registered, BROKERS)), lambda: "a broker did not register again")
        load.writer.wait_for_more()
        load.wait_until_whole()
