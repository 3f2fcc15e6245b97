"""A cluster with an authorizer: brokers work with ClusterAction alone, and every broker knows new rules at once."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.server.test_forwarding import BROKERS, controller_of, create, others
from tidelog.authorization.acls import AclEntry, Operation, Permission, ResourcePattern, ResourceType
from tidelog.cluster import acl_znodes
from tidelog.config.authorization import STANDARD_AUTHORIZER
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.runtime.memory_network import CLIENT_HOST
from tidelog.simulation.cluster import SimulatedCluster, host_of
from tidelog.simulation.processes import run_simulation
from tidelog.store.memory import MemoryStore

ANYBODY = "User:ANONYMOUS"
CLUSTER = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
ALL_TOPICS = ResourcePattern(ResourceType.TOPIC, "*")
TOPIC_DENIED = 29


async def store_rules(cluster: SimulatedCluster) -> None:
    """Brokers have ClusterAction and nothing else; clients have everything else. Hosts tell them apart."""
    store = MemoryStore(cluster.store_state)
    for path in acl_znodes.ACL_PATHS:
        await store.create(path)
    of_brokers = [
        AclEntry(ANYBODY, host_of(broker_id), Operation.CLUSTER_ACTION, Permission.ALLOW) for broker_id in BROKERS
    ]
    of_clients = [
        AclEntry(ANYBODY, CLIENT_HOST, operation, Permission.ALLOW)
        for operation in (Operation.CREATE, Operation.ALTER, Operation.DESCRIBE)
    ]
    await store.create(acl_znodes.acls_path(CLUSTER), acl_znodes.encode_acls(of_brokers + of_clients))
    everything = [AclEntry(ANYBODY, CLIENT_HOST, Operation.ALL, Permission.ALLOW)]
    await store.create(acl_znodes.acls_path(ALL_TOPICS), acl_znodes.encode_acls(everything))
    await store.close()


def with_cluster(scenario: Callable[[SimulatedCluster], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimulatedCluster(3, auto_leader_rebalance_enable=False, authorizer_class_name=STANDARD_AUTHORIZER)
        await store_rules(cluster)
        await cluster.start_all()
        await scenario(cluster)
        await cluster.stop_all()

    run_simulation(main())


def test_brokers_need_cluster_action_only_to_replicate_and_to_forward() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        for broker_id in (controller_of(cluster), others(cluster)[0]):
            result = await create(await cluster.connect(broker_id), f"by-{broker_id}")
            assert result.error_code == 0, result
        await asyncio.sleep(1)
        for broker in cluster.running:
            for topic in broker.cluster.image.topics.values():
                assert [len(partition.in_sync_replicas) for partition in topic.partitions] == [3]

    with_cluster(scenario)


async def codes(cluster: SimulatedCluster, topic: str) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return [
        (await (await cluster.connect(broker_id)).ask(request, MetadataResponse)).topics[0].error_code
        for broker_id in BROKERS
    ]


def test_a_rule_is_effective_on_all_brokers_within_a_second() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        connection = await cluster.connect(1)
        await create(connection, "orders")
        denial = AclCreation(2, "ord", 4, "User:*", "*", Operation.DESCRIBE, Permission.DENY)
        created = await connection.ask(CreateAclsRequest(creations=[denial]), CreateAclsResponse)
        assert [result.error_code for result in created.results] == [0]
        assert (await codes(cluster, "orders"))[0] == TOPIC_DENIED
        await asyncio.sleep(1)
        assert await codes(cluster, "orders") == [TOPIC_DENIED] * 3
        selected = DeleteAclsFilter(2, "orders", 2, None, None, 1, Permission.DENY)
        deleted = await connection.ask(DeleteAclsRequest(filters=[selected]), DeleteAclsResponse)
        assert [len(result.matching_acls) for result in deleted.filter_results] == [1]
        await asyncio.sleep(1)
        assert await codes(cluster, "orders") == [0] * 3

    with_cluster(scenario)


def test_a_broker_that_lost_its_session_reads_the_rules_of_the_meantime() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create(await cluster.connect(1), "orders")
        cluster.store_state.expire(cluster.machines[3].sessions[-1])
        denial = AclCreation(2, "orders", 3, "User:*", "*", Operation.DESCRIBE, Permission.DENY)
        await (await cluster.connect(1)).ask(CreateAclsRequest(creations=[denial]), CreateAclsResponse)
        await asyncio.sleep(5)
        assert await codes(cluster, "orders") == [TOPIC_DENIED] * 3

    with_cluster(scenario)


def test_rules_of_two_writers_at_once_are_all_kept() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        async def write(broker_id: int, principal: str) -> None:
            rule = AclCreation(2, "orders", 3, principal, "*", Operation.READ, Permission.ALLOW)
            created = await (await cluster.connect(broker_id)).ask(
                CreateAclsRequest(creations=[rule]), CreateAclsResponse
            )
            assert [result.error_code for result in created.results] == [0]

        await asyncio.gather(*(write(broker_id, f"User:{broker_id}-{i}") for broker_id in BROKERS for i in range(3)))
        await asyncio.sleep(1)
        for broker in cluster.running:
            authorizer = broker._services.authorizer
            assert authorizer is not None
            assert len(authorizer.patterns[ResourcePattern(ResourceType.TOPIC, "orders")]) == 9

    with_cluster(scenario)
