"""In-sync replicas count in one incarnation: a broker that came back may have lost what it had (R39, KIP-903)."""

import pytest

from tests.simulation.broken_elections import incarnations_not_compared
from tests.simulation.scenario import (
    all_well_again,
    create_topic,
    in_sync,
    leading,
    produce,
    read_all,
    replica,
    simulate,
    stored,
    wait_for,
)
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.inspection import registered_epoch

CONTROLLER = 4
LAG_MS = 3000


async def write_too_late_who_has_caught_up(cluster: SimulatedCluster) -> None:
    """The leader cannot write for a while that broker 3 has caught up, which loses its disk meanwhile."""
    await create_topic(cluster, (1, 3, 2), min_insync_replicas=2)
    cluster.kill(3)
    await wait_for(lambda: in_sync(cluster) == {1, 2})
    await produce(cluster, b"acknowledged")
    cluster.cut_off_from_store(1)
    await cluster.start(3)
    leader = leading(cluster, 1)
    assert leader is not None
    await wait_for(lambda: leader.pending is not None and leader.pending.joining == (3,))
    cluster.kill(3)
    cluster.wipe(3)
    await wait_for(lambda: registered_epoch(cluster.store_state, 3) is None)
    cluster.cut(3, [1, 2])
    await cluster.start(3)
    cluster.reconnect_to_store(1)
    await wait_for(lambda: leader.pending is None or replica(cluster, 1).role is not leader)
    cluster.kill(1)
    await wait_for(lambda: stored(cluster).leader not in (1, -1))
    await all_well_again(cluster)
    assert await read_all(cluster) == [b"acknowledged"], "an acknowledged record is lost"


def test_a_broker_that_lost_its_disk_before_it_was_said_to_be_in_sync_is_not_elected_for_it() -> None:
    simulate(write_too_late_who_has_caught_up, 4, controller=CONTROLLER, replica_lag_time_max_ms=LAG_MS)


def test_acknowledged_records_are_lost_where_incarnations_of_in_sync_replicas_are_not_compared() -> None:
    with incarnations_not_compared(), pytest.raises(AssertionError, match="an acknowledged record is lost"):
        simulate(write_too_late_who_has_caught_up, 4, controller=CONTROLLER, replica_lag_time_max_ms=LAG_MS)
