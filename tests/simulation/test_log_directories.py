"""A broker that loses one of its log directories (R5): others take over what was there."""

import asyncio
import errno

from tests.server.test_replicated_partitions import Orders
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.processes import run_simulation


def test_another_replica_leads_when_the_directory_of_the_leader_fails() -> None:
    async def main() -> None:
        cluster = SimulatedCluster(log_dirs=("/first", "/second"))
        await cluster.start_all()
        orders = await Orders.create(cluster)
        assert await orders.produce(b"a") == 0
        directory = orders.replica(1).log.directory.path
        cluster.machines[1].disk.inject(errno.EIO, directory)
        await orders.produce(b"b", acks=1)
        await asyncio.sleep(1)
        assert orders.replica(2).is_leader
        assert set(orders.replica(2).in_sync_replicas) == {2, 3}
        assert cluster.broker(1).statistics().offline_partitions == 1

    run_simulation(main())
