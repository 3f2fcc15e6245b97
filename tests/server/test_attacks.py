"""Attacks on a broker with an authorizer, by a client that has logged in and has few permissions or none."""

from tests.server.harness import Client, batch_of, fetch_request, produce_request
from tests.server.test_authorization import GROUP_DENIED, TOPIC_DENIED, Guarded, with_authorizer
from tests.server.test_client_quotas import alter
from tidelog.authorization.acls import Operation, Permission, ResourceType
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.protocol.messages.fetch import FetchRequest, FetchResponse
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaTopicState
from tidelog.server.fetch_sessions import FINAL_EPOCH, FULL_EPOCH

SESSION_NOT_FOUND = 70


def test_the_epoch_of_a_broker_gives_no_permission_to_create_topics() -> None:
    async def scenario(guarded: Guarded) -> None:
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name="mine", num_partitions=1, replication_factor=1)],
            broker_id=0,
            broker_epoch=guarded.broker.cluster.image.brokers[0].epoch,
        )
        response = await guarded.alice.ask(request, 7, CreateTopicsResponse)
        assert [each.error_code for each in response.topics] == [TOPIC_DENIED]
        assert "mine" not in guarded.broker.cluster.image.topics

    with_authorizer(scenario)


def test_a_fetch_session_belongs_to_its_principal() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("secret")
        full = fetch_request("secret", 0, max_wait_ms=0)
        full.session_epoch = 0
        session_id = (await guarded.admin.ask(full, 12, FetchResponse)).session_id
        assert session_id

        async def codes(client: Client, epoch: int) -> tuple[int, int]:
            request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch)
            response = await client.ask(request, 12, FetchResponse)
            return response.error_code, len(response.responses)

        for epoch, code in ((1, SESSION_NOT_FOUND), (FULL_EPOCH, 0), (FINAL_EPOCH, 0)):
            assert await codes(guarded.alice, epoch) == (code, 0)
        assert await codes(guarded.admin, 1) == (0, 0)

    with_authorizer(scenario)


def test_a_rule_that_is_taken_away_ends_an_open_fetch_session() -> None:
    """The session keeps the partition, which is refused with the next request, and served again if it is allowed."""

    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("t")
        await guarded.allow(Operation.READ, ResourceType.TOPIC, "t")
        full = fetch_request("t", 0, max_wait_ms=0)
        full.session_epoch = 0
        session_id = (await guarded.alice.ask(full, 12, FetchResponse)).session_id
        assert session_id
        await guarded.admin.ask(produce_request("t", batch_of(b"secret")), 9, ProduceResponse)

        async def fetched(epoch: int) -> list[tuple[int, bool]]:
            request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch)
            response = await guarded.alice.ask(request, 12, FetchResponse)
            assert response.error_code == 0
            found = [each for topic in response.responses for each in topic.partitions]
            return [(each.error_code, bool(each.records)) for each in found]

        await guarded.allow(Operation.READ, ResourceType.TOPIC, "t", permission=Permission.DENY)
        assert await fetched(1) == [(TOPIC_DENIED, False)]
        every = DeleteAclsFilter(1, None, 1, None, None, 1, Permission.DENY)
        await guarded.admin.ask(DeleteAclsRequest(filters=[every]), 3, DeleteAclsResponse)
        assert await fetched(2) == [(0, True)]

    with_authorizer(scenario)


def test_a_member_whose_rule_is_taken_away_cannot_stay_in_its_group() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.allow(Operation.READ, ResourceType.GROUP, "g")
        await guarded.allow(Operation.READ, ResourceType.TOPIC, "t")
        await guarded.admin.create_topic("t")
        await guarded.admin.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)

        async def heartbeat(epoch: int) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=epoch,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            return await guarded.alice.ask(request, 1, ConsumerGroupHeartbeatResponse)

        joined = await heartbeat(0)
        assert joined.error_code == 0, joined
        await guarded.allow(Operation.READ, ResourceType.GROUP, "g", permission=Permission.DENY)
        assert (await heartbeat(joined.member_epoch)).error_code == GROUP_DENIED

    with_authorizer(scenario)


def test_requests_of_controllers_are_large_only_from_brokers() -> None:
    """Millions of elements in a few megabytes become gigabytes of objects."""

    async def scenario(guarded: Guarded) -> None:
        large = StopReplicaRequest(topic_states=[StopReplicaTopicState("t")] * 20_000)
        guarded.alice.start(large, 3)
        await guarded.admin.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        assert guarded.alice.closed_because

    with_authorizer(scenario)


def test_finding_a_coordinator_without_permission_creates_no_topic() -> None:
    async def scenario(guarded: Guarded) -> None:
        for key_type in (0, 1):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["mine"])
            await guarded.alice.ask(request, 4, FindCoordinatorResponse)
        assert not guarded.broker.cluster.image.topics

    with_authorizer(scenario)


def test_regular_expressions_of_groups_do_not_reveal_which_topics_exist() -> None:
    async def scenario(guarded: Guarded) -> None:
        for topic in ("secret-plans", "open"):
            await guarded.admin.create_topic(topic)
        await guarded.allow(Operation.READ, ResourceType.GROUP, "g")
        await guarded.allow(Operation.DESCRIBE, ResourceType.TOPIC, "open")
        await guarded.admin.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1000, subscribed_topic_regex=".*", topic_partitions=[]
        )
        response = await guarded.alice.ask(request, 1, ConsumerGroupHeartbeatResponse)
        assert response.error_code == 0, response
        assert response.assignment is not None
        topic_id = guarded.broker.cluster.image.topics["open"].topic_id
        assert [each.topic_id for each in response.assignment.topic_partitions] == [topic_id]

    with_authorizer(scenario)


def test_topics_that_are_created_by_asking_for_them_count_against_the_quota() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.allow(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
        await guarded.allow(Operation.DESCRIBE, ResourceType.TOPIC, "*")
        assert await alter(guarded.admin, {"user": "alice"}, controller_mutation_rate=0.1) == 0
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=f"t{number}") for number in range(30)], allow_auto_topic_creation=True
        )
        response = await guarded.alice.ask(request, 9, MetadataResponse)
        assert response.throttle_time_ms > 0

    with_authorizer(scenario)
