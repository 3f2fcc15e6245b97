"""Comparison of a coordinator's state with its records: a difference is noticed."""

from tests.simulation.scenario import TOPIC, simulate
from tests.simulation.test_coordinators import commit, prepare
from tidelog.groups.machine import GroupMachine
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.coordinator_audit import acting, differences


async def remember_wrongly(cluster: SimulatedCluster) -> None:
    await prepare(cluster)
    assert await commit(cluster, 1, 7)
    assert list(differences(cluster)) == []
    (machine,) = [shard.machine for shard in acting(cluster) if isinstance(shard.machine, GroupMachine)]
    earlier = machine.offsets.committed.get("group", TOPIC, 0)
    assert earlier is not None
    assert await commit(cluster, 1, 8)
    assert list(differences(cluster)) == []
    machine.offsets.committed.put("group", TOPIC, 0, earlier)
    (found,) = differences(cluster)
    assert found.startswith("G3 __consumer_offsets-0 on broker 1: ('offsets', 'group') is ")


def test_a_coordinator_that_remembers_what_no_record_says_is_noticed() -> None:
    simulate(remember_wrongly, controller=2)
