"""A partition whose in-sync replicas are all gone (R35): it waits, unless the operator would rather lose records."""

from tests.simulation.scenario import TOPIC, ask, create_topic, in_sync, produce, read_all, simulate, stored, wait_for
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.simulation.cluster import SimulatedCluster

TOPIC_RESOURCE, SET = 2, 0


def test_a_topic_that_comes_to_allow_unclean_elections_gets_a_leader_at_once() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, [2, 3])
        await produce(cluster, b"on both")
        cluster.kill(3)
        await wait_for(lambda: in_sync(cluster) == {2})
        await produce(cluster, b"on one only")
        cluster.kill(2)
        await cluster.start(3)
        await wait_for(lambda: stored(cluster).leader == -1)
        assert in_sync(cluster) == {2}
        await _allow_unclean_elections(cluster)
        await wait_for(lambda: stored(cluster).leader == 3, timeout_s=1)
        assert in_sync(cluster) == {3}
        assert await read_all(cluster) == [b"on both"]

    simulate(scenario)


async def _allow_unclean_elections(cluster: SimulatedCluster) -> None:
    setting = AlterableConfig(name="unclean.leader.election.enable", config_operation=SET, value="true")
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[setting])
    answer = await ask(
        cluster, 1, IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    assert answer.responses[0].error_code == 0
