"""Requests of the controller to a broker: who may send them, in which order, and what they change."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration, Topic
from tidelog.config.broker import BrokerSettings
from tidelog.config.listeners import Endpoint
from tidelog.config.topic import TopicSettings
from tidelog.controller.registration import prepare_store
from tidelog.controller.request_batch import LEADER_DURING_DELETE, RequestBatch
from tidelog.errors import (
    ClusterAuthorizationFailed,
    KafkaError,
    KafkaStorageError,
    NotController,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicId,
)
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, RemainingPartition
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.protocol.structs import Request
from tidelog.replication.assignment import LeaderAddress, PartitionAssignment, ReplicaStop
from tidelog.runtime.virtual_time import VirtualClock, VirtualTimeLoop, run_virtually
from tidelog.server.cluster_state import ClusterState
from tidelog.server.config_changes import ConfigChanges
from tidelog.server.control_plane import MAX_ROLES_PER_STEP, ControlPlane
from tidelog.server.dispatch import RequestContext
from tidelog.server.handlers.controlled_shutdown import handle_controlled_shutdown
from tidelog.server.handlers.leader_and_isr import handle_leader_and_isr
from tidelog.server.handlers.stop_replica import handle_stop_replica
from tidelog.server.handlers.update_metadata import handle_update_metadata
from tidelog.server.membership import NOT_REGISTERED
from tidelog.store.memory import MemoryStore, MemoryStoreState
from tidelog.types import TopicPartition, Uuid

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16
BROKER_EPOCH = 50
CONTROLLER_EPOCH = 7


def broker(broker_id: int, epoch: int = BROKER_EPOCH) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id, (Endpoint("PLAINTEXT", f"host{broker_id}", 9092, "PLAINTEXT"),), f"r{broker_id}", epoch
    )


LIVE = {broker_id: broker(broker_id) for broker_id in (1, 2)}


def partition(index: int = 0, leader: int = 1, leader_epoch: int = 0) -> PartitionRegistration:
    return PartitionRegistration(index, (1, 2), leader, leader_epoch, (1, 2), CONTROLLER_EPOCH, 3)


class RecordedReplicas:
    """Records what it is asked to do, and with which settings it would have made the logs."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self.controller_epoch = 0
        self.assignments: list[PartitionAssignment] = []
        self.live_leaders: Mapping[int, LeaderAddress] = {}
        self.stops: list[ReplicaStop] = []
        self.retention_ms: list[int] = []
        self.errors: dict[TopicPartition, KafkaError | None] = {}

    def become_leader_or_follower(
        self, controller_epoch: int, assignments: Sequence[PartitionAssignment], live_leaders: Mapping[int, Any]
    ) -> dict[TopicPartition, KafkaError | None]:
        self.controller_epoch = controller_epoch
        self.assignments += assignments
        self.live_leaders = live_leaders
        self.retention_ms += [
            self._cluster.topic_settings(each.topic_partition.topic).retention_ms for each in assignments
        ]
        return {each.topic_partition: self.errors.get(each.topic_partition) for each in assignments}

    def stop_replicas(
        self, controller_epoch: int, stops: Sequence[ReplicaStop]
    ) -> dict[TopicPartition, KafkaError | None]:
        self.controller_epoch = controller_epoch
        self.stops += stops
        return {each.topic_partition: self.errors.get(each.topic_partition) for each in stops}

    def configure(self, topic: str, partition_count: int, settings: TopicSettings) -> None: ...

    def on_brokers_changed(self, broker_epochs: Mapping[int, int]) -> None:
        self.broker_epochs = broker_epochs


class SlowStore(MemoryStore):
    """Takes its time over reading many nodes."""

    delay_s = 0.0
    reads = 0

    async def get_many(self, paths: Sequence[str]) -> list[Any]:
        self.reads += 1
        await asyncio.sleep(self.delay_s)
        return await super().get_many(paths)


class ControlledBroker:
    """Broker 1, as far as the controller sees it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        self.state = MemoryStoreState()
        self.store = SlowStore(self.state)
        self.cluster = ClusterState(1, BrokerSettings(broker_id=1), ClusterImage("c"))
        self.replicas = RecordedReplicas(self.cluster)
        self.cluster.start(self.replicas)  # type: ignore[arg-type]
        self.broker_epoch = BROKER_EPOCH
        self.registered = asyncio.Event()
        self.registered.set()
        changes = ConfigChanges(self.cluster, lambda: self.store, VirtualClock(loop))
        plane = ControlPlane(self.cluster, self.replicas, changes, self)  # type: ignore[arg-type]
        services = SimpleNamespace(control_plane=plane)
        session = SimpleNamespace(is_inter_broker=True)
        self.connection = SimpleNamespace(trusted=0, trust=self._on_trusted, session=session)
        self.call = RequestContext(services, self.connection, 7, 1, "controller")  # type: ignore[arg-type]

    def _on_trusted(self) -> None:
        self.connection.trusted += 1

    async def wait_until_registered(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.registered.wait()

    async def set_configs(self, topic: str, **configs: str) -> None:
        data = znodes.encode_config({name.replace("_", "."): value for name, value in configs.items()})
        await self.store.create(znodes.topic_config_path(topic), data)

    async def receive(self, request: Request) -> Any:
        """Over the wire and back, so to say."""
        request = decode(
            type(request), type(request).__versions__.last, encode(request, type(request).__versions__.last)
        )
        match request:
            case LeaderAndIsrRequest():
                return await handle_leader_and_isr(request, self.call)
            case StopReplicaRequest():
                return await handle_stop_replica(request, self.call)
            case UpdateMetadataRequest():
                return await handle_update_metadata(request, self.call)
        raise AssertionError(request)


def batch(controller_epoch: int = CONTROLLER_EPOCH) -> RequestBatch:
    return RequestBatch(2, controller_epoch)


def request_of(filled: RequestBatch, live: Mapping[int, BrokerRegistration] = LIVE) -> Request:
    (request,) = (request for target, request in filled.build(live) if target == 1)
    return request


def leadership(topic: str = "orders", topic_id: Uuid = ORDERS, epoch: int = CONTROLLER_EPOCH) -> Request:
    filled = batch(epoch)
    filled.add_leader_and_isr([1], topic, topic_id, partition(), is_new=True)
    return request_of(filled)


def metadata(
    *topics: tuple[str, Uuid, PartitionRegistration],
    epoch: int = CONTROLLER_EPOCH,
    live: Mapping[int, BrokerRegistration] = LIVE,
    is_whole_cluster: bool = False,
) -> Request:
    filled = batch(epoch)
    filled.add_metadata([1], topics, is_whole_cluster=is_whole_cluster)
    return request_of(filled, live)


def stop(epoch: int = CONTROLLER_EPOCH) -> Request:
    filled = batch(epoch)
    filled.add_stop_replica([1], "orders", 0, leader_epoch=4, delete=True)
    return request_of(filled)


def with_broker(scenario: Callable[[ControlledBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        controlled = ControlledBroker()
        await prepare_store(controlled.store)
        await scenario(controlled)

    run_virtually(main())


# -- LeaderAndIsr


def test_replicas_are_assigned_with_all_that_the_controller_says() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        failed = TopicPartition("orders", 0)
        controlled.replicas.errors[failed] = KafkaStorageError()
        filled = batch(CONTROLLER_EPOCH)
        state = replace(
            partition(), in_sync_epochs={1: 50}, eligible_leader_replicas=(3, 4), eligible_leader_epochs={3: 33}
        )
        filled.add_leader_and_isr([1], "orders", ORDERS, state, is_new=True)
        response = await controlled.receive(request_of(filled))
        assert controlled.replicas.assignments == [
            PartitionAssignment(
                failed,
                ORDERS,
                CONTROLLER_EPOCH,
                1,
                0,
                (1, 2),
                3,
                (1, 2),
                is_new=True,
                in_sync_epochs={1: 50},
                eligible_leader_epochs={3: 33, 4: -1},
                broker_epoch=BROKER_EPOCH,
            )
        ]
        assert controlled.replicas.live_leaders == {1: LeaderAddress(1, "host1", 9092)}
        assert response.error_code == 0
        ((topic),) = response.topics
        assert (topic.topic_id, [each.error_code for each in topic.partition_errors]) == (ORDERS, [56])

    with_broker(scenario)


def many_leaderships(count: int) -> Request:
    filled = batch(CONTROLLER_EPOCH)
    for index in range(count):
        filled.add_leader_and_isr([1], "orders", ORDERS, partition(index), is_new=True)
    return request_of(filled)


def test_others_are_served_while_many_partitions_get_their_roles() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        asking = asyncio.ensure_future(controlled.receive(many_leaderships(5 * MAX_ROLES_PER_STEP)))
        seen = set()
        while not asking.done():
            await asyncio.sleep(0)
            seen.add(len(controlled.replicas.assignments))
        assert seen == {step * MAX_ROLES_PER_STEP for step in range(6)}
        assert len((await asking).topics[0].partition_errors) == 5 * MAX_ROLES_PER_STEP

    with_broker(scenario)


def test_a_broker_that_registers_again_between_two_steps_takes_no_more_roles_of_its_earlier_epoch() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        asking = asyncio.ensure_future(controlled.receive(many_leaderships(5 * MAX_ROLES_PER_STEP)))
        while not controlled.replicas.assignments:  # noqa: ASYNC110
            await asyncio.sleep(0)
        controlled.broker_epoch = BROKER_EPOCH + 1
        response = await asking
        assert response.error_code == StaleBrokerEpoch.code
        assert len(controlled.replicas.assignments) == MAX_ROLES_PER_STEP

    with_broker(scenario)


def test_a_request_with_the_epoch_of_this_broker_is_from_a_broker() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        request: Any = leadership()
        for epoch, code in ((-1, ClusterAuthorizationFailed.code), (2**62, StaleBrokerEpoch.code)):
            request.broker_epoch = epoch
            assert (await controlled.receive(request)).error_code == code
        assert controlled.connection.trusted == 0
        request.broker_epoch = BROKER_EPOCH
        await controlled.receive(request)
        assert controlled.connection.trusted == 1

    with_broker(scenario)


def test_a_follower_that_knows_its_own_epoch_is_no_client() -> None:
    trusted: list[tuple[int, bool]] = []
    image = SimpleNamespace(brokers={2: SimpleNamespace(epoch=70)})
    services = SimpleNamespace(cluster=SimpleNamespace(image=image), authorizer=None)
    for replica_id, epoch, is_inter_broker in (
        (2, -1, True),
        (2, 69, True),
        (3, 70, True),
        (2, 70, False),
        (2, 70, True),
    ):
        connection = SimpleNamespace(
            is_privileged=False,
            session=SimpleNamespace(is_inter_broker=is_inter_broker),
            trust=lambda each=(replica_id, is_inter_broker): trusted.append(each),
        )
        RequestContext(services, connection, 16, 1, "x").trust_broker(replica_id, epoch)  # type: ignore[arg-type]
    assert trusted == [(2, True)]


def test_a_log_is_made_with_the_settings_of_a_topic_that_nobody_spoke_of_before() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.set_configs("orders", retention_ms="77")
        await controlled.receive(leadership())
        assert controlled.replicas.retention_ms == [77]
        await controlled.receive(metadata(("orders", ORDERS, partition())))
        assert controlled.cluster.image.topics["orders"].configs == {"retention.ms": "77"}

    with_broker(scenario)


def test_settings_are_read_once_for_each_new_topic() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        reads = controlled.store.reads
        await controlled.receive(leadership())
        await controlled.receive(leadership())
        await controlled.receive(metadata(("orders", ORDERS, partition())))
        await controlled.receive(metadata(("orders", ORDERS, partition(leader=2))))
        assert controlled.store.reads == reads + 1

    with_broker(scenario)


def test_a_topic_made_again_under_its_name_gets_the_settings_it_has_now() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("orders", ORDERS, partition())))
        await controlled.set_configs("orders", retention_ms="5")
        await controlled.receive(leadership(topic_id=PAYMENTS))
        assert controlled.replicas.retention_ms == [5]
        await controlled.receive(metadata(("orders", PAYMENTS, partition())))
        assert controlled.cluster.image.topics["orders"].topic_id == PAYMENTS
        assert controlled.cluster.image.topics["orders"].configs == {"retention.ms": "5"}
        assert controlled.cluster.image.topic_names == {PAYMENTS: "orders"}

    with_broker(scenario)


def test_requests_take_effect_in_the_order_they_came_even_if_the_first_waits_for_the_store() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("payments", PAYMENTS, partition())))
        controlled.store.delay_s = 10
        first = asyncio.ensure_future(controlled.receive(leadership()))
        second = asyncio.ensure_future(controlled.receive(leadership("payments", PAYMENTS)))
        await asyncio.sleep(1)
        assert controlled.replicas.assignments == []
        await asyncio.gather(first, second)
        assert [each.topic_partition.topic for each in controlled.replicas.assignments] == ["orders", "payments"]

    with_broker(scenario)


def test_a_request_waits_for_a_store_that_cannot_be_asked_now() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.set_configs("orders", retention_ms="5")
        controlled.state.expire(controlled.store.session_id)
        waiting = asyncio.ensure_future(controlled.receive(leadership()))
        await asyncio.sleep(5)
        assert not waiting.done()
        controlled.store = SlowStore(controlled.state)
        await waiting
        assert controlled.replicas.retention_ms == [5]

    with_broker(scenario)


@pytest.mark.parametrize("request_", [leadership(), metadata(("orders", ORDERS, partition()))])
def test_a_newer_controller_is_not_overtaken_by_a_request_that_waited_for_the_store(request_: Request) -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        controlled.store.delay_s = 10
        late = asyncio.ensure_future(controlled.receive(request_))
        await asyncio.sleep(1)
        controlled.replicas.controller_epoch = CONTROLLER_EPOCH + 1
        assert (await late).error_code == StaleControllerEpoch.code
        assert (controlled.replicas.assignments, controlled.cluster.image.topics) == ([], {})

    with_broker(scenario)


# -- who may


@pytest.mark.parametrize("request_", [leadership(), metadata(("orders", ORDERS, partition())), stop()])
def test_a_controller_of_the_past_is_refused(request_: Request) -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        controlled.replicas.controller_epoch = CONTROLLER_EPOCH + 1
        assert (await controlled.receive(request_)).error_code == StaleControllerEpoch.code
        assert (controlled.replicas.assignments, controlled.replicas.stops, controlled.cluster.image.topics) == (
            [],
            [],
            {},
        )

    with_broker(scenario)


@pytest.mark.parametrize("request_", [leadership(), metadata(("orders", ORDERS, partition())), stop()])
def test_what_was_meant_for_an_earlier_life_of_the_broker_is_refused(request_: Request) -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        controlled.broker_epoch = BROKER_EPOCH + 1
        assert (await controlled.receive(request_)).error_code == StaleBrokerEpoch.code
        assert (controlled.replicas.assignments, controlled.replicas.stops, controlled.cluster.image.topics) == (
            [],
            [],
            {},
        )
        controlled.broker_epoch = BROKER_EPOCH - 1  # nobody can know an epoch before this broker: it was guessed
        assert (await controlled.receive(request_)).error_code == StaleBrokerEpoch.code

    with_broker(scenario)


@pytest.mark.parametrize("request_", [leadership(), metadata(("orders", ORDERS, partition())), stop()])
def test_a_controller_that_knows_a_registration_before_the_broker_does_is_answered_after_it(request_: Request) -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        controlled.broker_epoch = NOT_REGISTERED
        controlled.registered.clear()
        early = asyncio.ensure_future(controlled.receive(request_))
        await asyncio.sleep(1)
        assert not early.done()
        controlled.broker_epoch = BROKER_EPOCH
        controlled.registered.set()
        assert (await early).error_code == 0

    with_broker(scenario)


def test_a_controller_does_not_wait_for_ever_for_a_broker_that_cannot_register() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        controlled.broker_epoch = NOT_REGISTERED
        controlled.registered.clear()
        assert (await controlled.receive(leadership())).error_code == StaleBrokerEpoch.code
        assert controlled.replicas.assignments == []

    with_broker(scenario)


def test_metadata_of_a_new_controller_ends_the_term_of_the_old_one() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(epoch=CONTROLLER_EPOCH + 1))
        assert controlled.replicas.controller_epoch == CONTROLLER_EPOCH + 1
        assert (await controlled.receive(leadership())).error_code == StaleControllerEpoch.code

    with_broker(scenario)


# -- UpdateMetadata


def test_brokers_are_replaced_as_a_whole_and_the_controller_is_who_sent_it() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata())
        assert (controlled.cluster.image.brokers, controlled.cluster.image.controller_id) == (LIVE, 2)
        assert controlled.replicas.broker_epochs == {1: BROKER_EPOCH, 2: BROKER_EPOCH}
        await controlled.receive(metadata(live={1: LIVE[1]}))
        assert controlled.cluster.image.brokers == {1: LIVE[1]}

    with_broker(scenario)


def test_topics_change_partition_by_partition() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("orders", ORDERS, partition(0)), ("orders", ORDERS, partition(1))))
        await controlled.receive(metadata(("payments", PAYMENTS, partition(0))))
        before = controlled.cluster.image
        await controlled.receive(metadata(("orders", ORDERS, partition(1, leader=2, leader_epoch=9))))
        image = controlled.cluster.image
        assert image.topics["orders"].partitions == (partition(0), partition(1, leader=2, leader_epoch=9))
        assert image.topics["payments"] is before.topics["payments"]
        assert image.brokers is before.brokers
        assert before.topics["orders"].partitions[1] == partition(1)

    with_broker(scenario)


def test_a_partition_that_the_controller_did_not_speak_of_has_no_leader() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("orders", ORDERS, partition(2))))
        missing, _, named = controlled.cluster.image.topics["orders"].partitions
        assert (missing.leader, missing.replicas, named) == (-1, (), partition(2))

    with_broker(scenario)


def test_a_topic_that_is_being_deleted_is_forgotten() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("orders", ORDERS, partition()), ("payments", PAYMENTS, partition())))
        reads = controlled.store.reads
        await controlled.receive(metadata(("orders", ORDERS, partition(leader=LEADER_DURING_DELETE))))
        assert list(controlled.cluster.image.topics) == ["payments"]
        assert controlled.cluster.image.topic_names == {PAYMENTS: "payments"}
        assert controlled.store.reads == reads

    with_broker(scenario)


def test_the_deletion_of_an_earlier_topic_does_not_touch_the_present_one_of_that_name() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("orders", PAYMENTS, partition())))
        await controlled.receive(metadata(("orders", ORDERS, partition(leader=LEADER_DURING_DELETE))))
        assert controlled.cluster.image.topics["orders"].topic_id == PAYMENTS

    with_broker(scenario)


def test_what_metadata_of_the_whole_cluster_does_not_name_is_gone() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        await controlled.receive(metadata(("orders", ORDERS, partition()), ("payments", PAYMENTS, partition())))
        await controlled.receive(metadata(("payments", PAYMENTS, partition()), is_whole_cluster=True))
        assert list(controlled.cluster.image.topics) == ["payments"]

    with_broker(scenario)


def test_settings_that_are_known_stay_when_a_leader_changes() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        topic = Topic("orders", ORDERS, (partition(),), {"retention.ms": "5"})
        controlled.cluster.apply(controlled.cluster.image.with_topics(topic))
        await controlled.receive(metadata(("orders", ORDERS, partition(leader=2))))
        assert controlled.cluster.image.topics["orders"].configs is topic.configs

    with_broker(scenario)


# -- StopReplica and ControlledShutdown


def test_replicas_are_stopped_and_each_outcome_is_returned() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        controlled.replicas.errors[TopicPartition("orders", 0)] = KafkaStorageError()
        response = await controlled.receive(stop())
        assert controlled.replicas.stops == [ReplicaStop(TopicPartition("orders", 0), 4, True)]
        (error,) = response.partition_errors
        assert (error.topic_name, error.partition_index, error.error_code) == ("orders", 0, 56)

    with_broker(scenario)


def test_others_are_served_while_many_replicas_are_stopped() -> None:
    async def scenario(controlled: ControlledBroker) -> None:
        filled = batch(CONTROLLER_EPOCH)
        for index in range(5 * MAX_ROLES_PER_STEP):
            filled.add_stop_replica([1], "orders", index, leader_epoch=4, delete=True)
        asking = asyncio.ensure_future(controlled.receive(request_of(filled)))
        seen = set()
        while not asking.done():
            await asyncio.sleep(0)
            seen.add(len(controlled.replicas.stops))
        assert seen == {step * MAX_ROLES_PER_STEP for step in range(1, 6)}
        assert len((await asking).partition_errors) == 5 * MAX_ROLES_PER_STEP

    with_broker(scenario)


@pytest.mark.parametrize(
    ("outcome", "code", "remaining"),
    [
        ({TopicPartition("b", 1), TopicPartition("a", 2)}, 0, [RemainingPartition("a", 2), RemainingPartition("b", 1)]),
        (NotController(), NotController.code, []),
    ],
)
def test_a_leaving_broker_learns_what_it_still_leads(
    outcome: set[TopicPartition] | KafkaError, code: int, remaining: list[RemainingPartition]
) -> None:
    async def controlled_shutdown(broker_id: int, broker_epoch: int) -> set[TopicPartition]:
        assert (broker_id, broker_epoch) == (3, 99)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    async def main() -> None:
        controller = SimpleNamespace(controlled_shutdown=controlled_shutdown)
        services = SimpleNamespace(membership=SimpleNamespace(controller=controller))
        connection = SimpleNamespace(session=SimpleNamespace(is_inter_broker=True))
        call = RequestContext(services, connection, 3, 1, "x")  # type: ignore[arg-type]
        response = await handle_controlled_shutdown(ControlledShutdownRequest(broker_id=3, broker_epoch=99), call)
        assert (response.error_code, response.remaining_partitions) == (code, remaining)

    run_virtually(main())


def test_a_topic_is_known_by_its_id_as_soon_as_somebody_is_to_lead_it() -> None:
    """Followers fetch by id, and may be quicker than the controller's next request."""

    async def main() -> None:
        controlled = ControlledBroker()
        await prepare_store(controlled.store)
        roles, metadata = batch(), batch()
        roles.add_leader_and_isr([1], "orders", ORDERS, partition(), is_new=True)
        for _, request in roles.build(LIVE):
            await controlled.receive(request)
        assert controlled.cluster.topic_name(ORDERS) == "orders"
        with pytest.raises(UnknownTopicId):
            controlled.cluster.topic_name(PAYMENTS)
        metadata.add_metadata([1], [("orders", ORDERS, partition())])
        for _, request in metadata.build(LIVE):
            await controlled.receive(request)
        assert controlled.cluster.topic_name(ORDERS) == "orders"
        assert not controlled.cluster.early_topics

    run_virtually(main())
