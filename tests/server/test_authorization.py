"""Permissions through the wire protocol: what each API refuses, and leaves out of its responses."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import pytest

from compat.answers.permission_requests import QUESTIONS, Names
from tests.server.harness import Client, Harness, batch_of, produce_request
from tidelog.authorization.acls import Operation, PatternType, Permission, ResourceType
from tidelog.config.authorization import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from tidelog.protocol.apis import API_KEYS, APIS
from tidelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from tidelog.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from tidelog.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from tidelog.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.list_transactions import ListTransactionsRequest
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.api_permissions import API_PERMISSIONS
from tidelog.server.broker import Broker
from tidelog.server.session import USER, Principal
from tidelog.types import ZERO_UUID

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED = 29, 30, 31, 53
DENIALS = {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED}


@dataclass
class Guarded:
    """A broker with an authorizer: an administrator who may do everything, and Alice, who may do nothing yet."""

    harness: Harness
    broker: Broker
    admin: Client
    alice: Client

    async def allow(
        self,
        operation: Operation,
        resource: ResourceType,
        name: str,
        *,
        permission: Permission = Permission.ALLOW,
        pattern: PatternType = PatternType.LITERAL,
    ) -> None:
        creation = AclCreation(resource, name, pattern, "User:alice", "*", operation, permission)
        response = await self.admin.ask(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)
        assert [result.error_code for result in response.results] == [0], response


async def connect_as(harness: Harness, broker: Broker, name: str) -> Client:
    earlier = set(broker.acceptor.registry._connections)
    client = await harness.connect()
    (connection,) = set(broker.acceptor.registry._connections) - earlier
    connection.session.authenticate(Principal(USER, name))
    return client


def with_authorizer(scenario: Callable[[Guarded], Awaitable[None]], **settings: object) -> None:
    values = {
        "authorizer_class_name": STANDARD_AUTHORIZER,
        "super_users": "User:admin;User:ANONYMOUS",  # brokers connect to themselves without a login here
        "offsets_topic_num_partitions": 1,
        "transaction_state_log_num_partitions": 1,
        **settings,
    }

    async def main() -> None:
        harness = Harness()
        async with harness.broker(**values) as broker:
            admin = await connect_as(harness, broker, "admin")
            await scenario(Guarded(harness, broker, admin, await connect_as(harness, broker, "alice")))

    run_virtually(main())


def test_every_api_says_which_permissions_it_needs() -> None:
    assert {api.key for api in APIS} <= set(API_PERMISSIONS)
    for key in API_PERMISSIONS:
        found = API_PERMISSIONS[key]
        assert bool(found.by_handler) + bool(found.cluster_operations) + found.is_free == 1, key


NAMES = Names("t", ZERO_UUID, missing="missing", group="g", transactional_id="x")
HIDING = {"Metadata of all topics", "ListGroups", "ListTransactions", "DescribeCluster"}
"""Their answers leave out what may not be described, without an error; they have tests of their own."""

OF_BROKERS: tuple[Request, ...] = (
    LeaderAndIsrRequest(),
    StopReplicaRequest(),
    UpdateMetadataRequest(),
    ControlledShutdownRequest(broker_id=0, broker_epoch=1),
    AlterPartitionRequest(broker_id=0),
    AllocateProducerIdsRequest(broker_id=0),
)
OTHER_REQUESTS = (*OF_BROKERS, DescribeLogDirsRequest(topics=None))

OLDER_VERSIONS = {0: 9, 1: 12, 8: 9, 9: 9}
"""Those that name topics, since their ids differ from run to run."""

REQUESTS: Mapping[str, Request] = {
    title: make(NAMES, OLDER_VERSIONS.get(key, API_KEYS[key].versions.last))
    for title, (key, make) in QUESTIONS.items()
    if title not in HIDING
} | {type(request).__name__: request for request in OTHER_REQUESTS}
"""Requests of every API that answers a principal without permissions with an error."""

OTHERS = {16, 18, 24, 60, 66}
"""ApiVersions hides nothing, AddPartitionsToTxn has versions for clients and for brokers: see also `HIDING`."""


def test_every_api_is_tried_without_permissions() -> None:
    free = {key for key, found in API_PERMISSIONS.items() if found.is_free}
    assert {request.__api_key__ for request in REQUESTS.values()} | OTHERS | free >= {api.key for api in APIS}


def codes_in(value: object) -> set[int]:
    if isinstance(value, list):
        return {code for each in value for code in codes_in(each)}
    if not isinstance(value, Struct):
        return set()
    found = {value.error_code} if hasattr(value, "error_code") else set()
    return found | {code for field in value.__fields__ for code in codes_in(getattr(value, field.name))}


@pytest.mark.parametrize("title", REQUESTS)
def test_a_principal_without_permissions_gets_nothing(title: str) -> None:
    request_ = REQUESTS[title]
    api = API_KEYS[request_.__api_key__]

    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("t")
        version = OLDER_VERSIONS.get(api.key, api.versions.last)
        response = await guarded.alice.ask(request_, version, api.response)
        assert codes_in(response) & DENIALS, response
        assert codes_in(response) <= DENIALS | {0}, response

    with_authorizer(scenario)


@pytest.mark.parametrize("version", [3, 4])
def test_partitions_are_added_to_transactions_by_their_producer_or_by_brokers(version: int) -> None:
    async def scenario(guarded: Guarded) -> None:
        topics = [AddPartitionsToTxnTopic("t", [0])]
        request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
        response = await guarded.alice.ask(request, version, API_KEYS[24].response)
        assert codes_in(response) <= DENIALS | {0}
        found = response.error_code if version == 4 else _codes_of_partitions(response)  # type: ignore[attr-defined]
        assert found == (CLUSTER_DENIED if version == 4 else [TRANSACTION_DENIED])

    with_authorizer(scenario)


def _codes_of_partitions(response: Response) -> list[int]:
    return [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below  # type: ignore[attr-defined]
        for each in topic.results_by_partition
    ]


def test_lists_contain_only_what_may_be_described() -> None:
    async def scenario(guarded: Guarded) -> None:
        for name in ("seen", "hidden"):
            await guarded.admin.create_topic(name)
            request = ConsumerGroupHeartbeatRequest(
                group_id=name,
                member_id="m",
                rebalance_timeout_ms=1000,
                subscribed_topic_names=[name],
                topic_partitions=[],
            )
            await guarded.admin.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, API_KEYS[10].response)
            await guarded.admin.ask(request, 1, API_KEYS[68].response)
            await guarded.admin.ask(
                FindCoordinatorRequest(coordinator_keys=["x"], key_type=1), 4, API_KEYS[10].response
            )
            await guarded.admin.ask(
                InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4, InitProducerIdResponse
            )
        for resource in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            await guarded.allow(Operation.DESCRIBE, resource, "seen")
        topics = await guarded.alice.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        assert [topic.name for topic in topics.topics] == ["seen"]
        groups = await guarded.alice.ask(ListGroupsRequest(), 5, API_KEYS[16].response)
        assert [group.group_id for group in groups.groups] == ["seen"]  # type: ignore[attr-defined]
        transactions = await guarded.alice.ask(ListTransactionsRequest(), 0, API_KEYS[66].response)
        found = [state.transactional_id for state in transactions.transaction_states]  # type: ignore[attr-defined]
        assert found == ["seen"]

    with_authorizer(scenario)


def test_the_cluster_is_described_to_everybody_but_operations_only_with_permission() -> None:
    async def scenario(guarded: Guarded) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await guarded.alice.ask(request, 1, DescribeClusterResponse)
        assert (response.error_code, len(response.brokers), response.cluster_authorized_operations) == (0, 1, 0)
        await guarded.allow(Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster")
        response = await guarded.alice.ask(request, 1, DescribeClusterResponse)
        assert response.cluster_authorized_operations == 1 << Operation.ALTER | 1 << Operation.DESCRIBE

    with_authorizer(scenario)


def test_an_allowed_producer_writes_and_an_allowed_consumer_reads() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("orders")
        assert (await guarded.alice.produce("orders", b"a")).error_code == TOPIC_DENIED
        await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "ord", pattern=PatternType.PREFIXED)
        assert (await guarded.alice.produce("orders", b"a")).error_code == 0
        assert (await guarded.alice.fetch("orders", 0)).error_code == TOPIC_DENIED
        await guarded.allow(Operation.READ, ResourceType.TOPIC, "*")
        assert await guarded.alice.values("orders") == [b"a"]
        await guarded.allow(Operation.READ, ResourceType.TOPIC, "orders", permission=Permission.DENY)
        assert (await guarded.alice.fetch("orders", 0)).error_code == TOPIC_DENIED

    with_authorizer(scenario)


def test_with_acks_0_a_denied_producer_is_disconnected() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("orders")
        guarded.alice.start(produce_request("orders", batch_of(b"a"), acks=0), 9)
        await guarded.admin.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        assert guarded.alice.closed_because
        assert await guarded.admin.values("orders") == []

    with_authorizer(scenario)


def test_transactional_records_need_a_permission_for_the_transactional_id() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("orders")
        await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "orders")
        batch = batch_of(b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
        request = produce_request("orders", batch)
        request.transactional_id = "x"
        response = await guarded.alice.ask(request, 9, ProduceResponse)
        assert response.responses[0].partition_responses[0].error_code == TRANSACTION_DENIED

    with_authorizer(scenario)


def test_idempotent_producers_may_write_to_any_topic() -> None:
    async def scenario(guarded: Guarded) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        response = await guarded.alice.ask(request, 4, InitProducerIdResponse)
        assert response.error_code == CLUSTER_DENIED
        await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "some")
        response = await guarded.alice.ask(request, 4, InitProducerIdResponse)
        assert response.error_code == 0

    with_authorizer(scenario)


def test_topics_are_created_on_demand_only_with_permission() -> None:
    async def scenario(guarded: Guarded) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
        await guarded.allow(Operation.DESCRIBE, ResourceType.TOPIC, "new")
        response = await guarded.alice.ask(request, 12, MetadataResponse)
        assert response.topics[0].error_code == TOPIC_DENIED
        assert "new" not in guarded.broker.cluster.image.topics
        await guarded.allow(Operation.CREATE, ResourceType.TOPIC, "new")
        response = await guarded.alice.ask(request, 12, MetadataResponse)
        assert response.topics[0].error_code == 0

    with_authorizer(scenario)


def test_names_of_topics_that_may_not_be_described_are_not_revealed() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("secret")
        topic_id = guarded.broker.cluster.image.topics["secret"].topic_id
        request = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
        response = await guarded.alice.ask(request, 12, MetadataResponse)
        assert [(topic.error_code, topic.name) for topic in response.topics] == [(TOPIC_DENIED, None)]
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
        deleted = await guarded.alice.ask(deletion, 6, DeleteTopicsResponse)
        assert [(topic.error_code, topic.name) for topic in deleted.responses] == [(TOPIC_DENIED, None)]
        await guarded.allow(Operation.DESCRIBE, ResourceType.TOPIC, "secret")
        deleted = await guarded.alice.ask(deletion, 6, DeleteTopicsResponse)
        assert [(topic.error_code, topic.name) for topic in deleted.responses] == [(TOPIC_DENIED, "secret")]

    with_authorizer(scenario)


def test_configs_of_a_new_topic_are_returned_only_with_permission() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.allow(Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")
        topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
        response = await guarded.alice.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        (result,) = response.topics
        assert (result.error_code, result.topic_config_error_code, result.num_partitions) == (0, TOPIC_DENIED, -1)

    with_authorizer(scenario)


def test_everybody_may_do_everything_where_no_rule_is_found() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.alice.create_topic("open")
        assert (await guarded.alice.produce("open", b"a")).error_code == 0
        await guarded.allow(Operation.DESCRIBE, ResourceType.TOPIC, "open")
        assert (await guarded.alice.produce("open", b"a")).error_code == TOPIC_DENIED

    with_authorizer(scenario, allow_everyone_if_no_acl_found=True, authorizer_class_name=ACL_AUTHORIZER)


# The rules themselves


def test_rules_are_created_described_and_deleted() -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.allow(Operation.READ, ResourceType.TOPIC, "a")
        await guarded.allow(Operation.READ, ResourceType.TOPIC, "a")  # again: nothing changes
        await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "a")
        await guarded.allow(Operation.READ, ResourceType.GROUP, "g", pattern=PatternType.PREFIXED)
        every = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
        found = await guarded.admin.ask(every, 3, DescribeAclsResponse)
        assert {(each.resource_name, each.pattern_type, len(each.acls)) for each in found.resources} == {
            ("a", PatternType.LITERAL, 2),
            ("g", PatternType.PREFIXED, 1),
        }
        filters = [DeleteAclsFilter(2, "a", 3, None, None, 3, 1), DeleteAclsFilter(1, None, 1, None, None, 3, 1)]
        deleted = await guarded.admin.ask(DeleteAclsRequest(filters=filters), 3, DeleteAclsResponse)
        assert [len(result.matching_acls) for result in deleted.filter_results] == [1, 2]
        found = await guarded.admin.ask(every, 3, DescribeAclsResponse)
        assert [(each.resource_name, len(each.acls)) for each in found.resources] == [("a", 1)]

    with_authorizer(scenario)


@pytest.mark.parametrize(
    "bad",
    [
        AclCreation(4, "other", 3, "User:a", "*", 3, 3),
        AclCreation(2, "", 3, "User:a", "*", 3, 3),
        AclCreation(2, "a/b", 3, "User:a", "*", 3, 3),
        AclCreation(1, "a", 3, "User:a", "*", 3, 3),
        AclCreation(2, "a", 2, "User:a", "*", 3, 3),
        AclCreation(2, "a", 3, "User:a", "*", 1, 3),
        AclCreation(2, "a", 3, "User:a", "*", 3, 1),
    ],
)
def test_a_rule_that_cannot_be_is_refused_alone(bad: AclCreation) -> None:
    async def scenario(guarded: Guarded) -> None:
        good = AclCreation(2, "a", 3, "User:a", "*", 3, 3)
        response = await guarded.admin.ask(CreateAclsRequest(creations=[bad, good]), 3, CreateAclsResponse)
        assert [result.error_code for result in response.results] == [42, 0]

    with_authorizer(scenario)


def test_codes_that_do_not_exist_close_the_connection() -> None:
    async def scenario(guarded: Guarded) -> None:
        guarded.admin.start(CreateAclsRequest(creations=[AclCreation(99, "a", 3, "User:a", "*", 3, 3)]), 3)
        await guarded.alice.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        assert guarded.admin.closed_because

    with_authorizer(scenario)


def test_rules_survive_a_restart_and_are_those_of_kafka_in_the_store() -> None:
    async def main() -> None:
        harness = Harness()
        settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin;User:ANONYMOUS"}
        async with harness.broker(**settings) as broker:
            admin = await connect_as(harness, broker, "admin")
            guarded = Guarded(harness, broker, admin, admin)
            await admin.create_topic("orders")
            await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "orders")
            await guarded.allow(Operation.READ, ResourceType.TRANSACTIONAL_ID, "tx", pattern=PatternType.PREFIXED)
            store = harness.stores[-1]
            assert (await store.get("/kafka-acl/Topic/orders")).data == (
                b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Write","host":"*"}]}'
            )
            assert (await store.get("/kafka-acl-changes/acl_changes_0000000000")).data == b"TOPIC:orders"
            assert await store.exists("/kafka-acl-extended/prefixed/TransactionalId/tx")
            assert (await store.get("/kafka-acl-extended-changes/acl_changes_0000000000")).data == (
                b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx","patternType":"PREFIXED"}'
            )
        async with harness.broker(**settings) as broker:
            alice = await connect_as(harness, broker, "alice")
            assert (await alice.produce("orders", b"a")).error_code == 0

    run_virtually(main())


def test_rules_that_cannot_be_read_deny_everybody() -> None:
    async def main() -> None:
        harness = Harness()
        settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin;User:ANONYMOUS"}
        async with harness.broker(**settings) as broker:
            admin = await connect_as(harness, broker, "admin")
            await admin.create_topic("orders")
            await Guarded(harness, broker, admin, admin).allow(Operation.WRITE, ResourceType.TOPIC, "*")
            await harness.stores[-1].create("/kafka-acl/Topic/orders", b'{"version":2}')
        async with harness.broker(**settings) as broker:
            alice = await connect_as(harness, broker, "alice")
            assert (await alice.produce("orders", b"a")).error_code == TOPIC_DENIED
            admin = await connect_as(harness, broker, "admin")
            creation = AclCreation(2, "orders", 3, "User:alice", "*", 4, 3)
            response = await admin.ask(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse)
            assert [result.error_code for result in response.results] == [42]

    run_virtually(main())


def test_denials_and_changes_are_lines_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(guarded: Guarded) -> None:
        await guarded.admin.create_topic("orders")
        for _ in range(100):
            await guarded.alice.produce("orders", b"a")
        await guarded.admin.produce("x\ndenied principal=User:bob", b"a")
        await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "x\ndenied principal=User:bob")
        await guarded.allow(Operation.WRITE, ResourceType.TOPIC, "orders")

    with caplog.at_level(logging.INFO, logger="tidelog.audit"):
        with_authorizer(scenario)
    lines = [record.getMessage() for record in caplog.records if record.name == "tidelog.audit"]
    denials = [line for line in lines if line.startswith("denied")]
    assert len(denials) == 30
    assert denials[0] == (
        "denied principal=User:alice host=client listener=PLAINTEXT operation=Write resource=Topic:orders"
        " client_id=test"
    )
    assert not any("\n" in line for line in lines)
    assert "ACL created by=User:admin acl=Allow Write to User:alice from any host on Topic orders" in lines
