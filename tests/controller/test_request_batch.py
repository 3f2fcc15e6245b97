"""Requests of the controller to brokers at the end of an event: to whom, in which order, each thing once."""

from dataclasses import replace

from tidelog.cluster.image import BrokerRegistration, PartitionRegistration
from tidelog.config.listeners import Endpoint
from tidelog.controller.request_batch import LEADER_DURING_DELETE, WHOLE_CLUSTER, RequestBatch
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.fields import SharedList
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrRequest
from tidelog.protocol.messages.stop_replica import StopReplicaRequest
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.protocol.structs import Request

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16


def broker(broker_id: int) -> BrokerRegistration:
    endpoints = (
        Endpoint("OUTSIDE", "example", 9000 + broker_id, "SSL"),
        Endpoint("INSIDE", f"host{broker_id}", 9092, "PLAINTEXT"),
    )
    return BrokerRegistration(broker_id, endpoints, f"rack{broker_id}", epoch=100 + broker_id)


LIVE = {broker_id: broker(broker_id) for broker_id in (1, 2, 3)}


def partition(index: int = 0, leader: int = 1, leader_epoch: int = 5) -> PartitionRegistration:
    return PartitionRegistration(index, (1, 2, 4), leader, leader_epoch, (1, 2), controller_epoch=7, version=9)


def requests_of(built: list[tuple[int, Request]], broker_id: int) -> list[Request]:
    return [request for target, request in built if target == broker_id]


def test_leadership_goes_to_the_named_live_brokers_with_their_epochs_and_the_address_of_live_leaders() -> None:
    batch = RequestBatch(3, 7)
    batch.add_leader_and_isr([1, 2, 4], "orders", ORDERS, partition(0, leader=2), is_new=True)
    batch.add_leader_and_isr([2], "orders", ORDERS, partition(1, leader=4), is_new=False)
    built = batch.build(LIVE)
    assert [target for target, _ in built] == [1, 2]
    request = built[1][1]
    assert isinstance(request, LeaderAndIsrRequest)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (3, 7, 102)
    assert request.live_leaders == [LeaderAndIsrLiveLeader(2, "host2", 9092)]
    (topic,) = request.topic_states
    assert (topic.topic_name, topic.topic_id) == ("orders", ORDERS)
    first, second = topic.partition_states
    assert (first.partition_index, first.leader, first.leader_epoch, first.is_new) == (0, 2, 5, True)
    assert (tuple(first.isr), tuple(first.replicas), first.partition_epoch) == ((1, 2), (1, 2, 4), 9)
    assert (second.partition_index, second.leader, second.is_new) == (1, 4, False)


def test_what_is_said_twice_of_a_partition_is_sent_once_and_a_new_replica_stays_new() -> None:
    batch = RequestBatch(3, 7)
    batch.add_leader_and_isr([1], "orders", ORDERS, partition(leader_epoch=5), is_new=True)
    batch.add_leader_and_isr([1], "orders", ORDERS, partition(leader_epoch=6), is_new=False)
    batch.add_metadata([1], [("orders", ORDERS, partition(leader_epoch=5))])
    batch.add_metadata([1], [("orders", ORDERS, partition(leader_epoch=6))])
    leadership, metadata = requests_of(batch.build(LIVE), 1)
    assert isinstance(leadership, LeaderAndIsrRequest)
    (state,) = leadership.topic_states[0].partition_states
    assert (state.leader_epoch, state.is_new) == (6, True)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert [each.leader_epoch for each in metadata.topic_states[0].partition_states] == [6]


def test_leaders_begin_before_others_hear_of_it_and_replicas_stop_last() -> None:
    batch = RequestBatch(3, 7)
    batch.add_stop_replica([1], "payments", 4, leader_epoch=8, delete=True)
    batch.add_metadata([1], [("orders", ORDERS, partition())])
    batch.add_leader_and_isr([1], "orders", ORDERS, partition(), is_new=False)
    built = requests_of(batch.build(LIVE), 1)
    assert [type(request) for request in built] == [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest]
    stop = built[2]
    assert isinstance(stop, StopReplicaRequest)
    (topic,) = stop.topic_states
    (state,) = topic.partition_states
    assert (topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition) == (
        "payments",
        4,
        8,
        True,
    )


def test_metadata_has_all_live_brokers_with_their_endpoints_racks_and_epochs() -> None:
    batch = RequestBatch(3, 7)
    batch.add_metadata(iter([1, 2]))
    built = batch.build(LIVE)
    assert [target for target, _ in built] == [1, 2]
    request = built[0][1]
    assert isinstance(request, UpdateMetadataRequest)
    assert (request.topic_states, request.broker_epoch, request.type) == ([], 101, 0)
    described = request.live_brokers[1]
    assert (described.id, described.rack, described.epoch) == (2, "rack2", 102)
    assert [(each.listener, each.host, each.port, each.security_protocol) for each in described.endpoints] == [
        ("OUTSIDE", "example", 9002, 1),
        ("INSIDE", "host2", 9092, 0),
    ]


def test_metadata_names_the_replicas_that_are_not_live() -> None:
    batch = RequestBatch(3, 7)
    batch.add_metadata([1, 2], [("orders", ORDERS, partition())])
    first, second = (request for _, request in batch.build(LIVE))
    assert isinstance(first, UpdateMetadataRequest)
    assert isinstance(second, UpdateMetadataRequest)
    assert first.topic_states[0].partition_states[0].offline_replicas == [4]
    assert first.topic_states is second.topic_states  # built once for all who get the same


def test_brokers_with_different_states_get_different_metadata() -> None:
    batch = RequestBatch(3, 7)
    batch.add_metadata(iter([1]), [("orders", ORDERS, partition())], is_whole_cluster=True)
    batch.add_metadata([2], [("payments", PAYMENTS, partition(leader=LEADER_DURING_DELETE))])
    first, second = (request for _, request in batch.build(LIVE))
    assert isinstance(first, UpdateMetadataRequest)
    assert isinstance(second, UpdateMetadataRequest)
    assert ([topic.topic_name for topic in first.topic_states], first.type) == (["orders"], WHOLE_CLUSTER)
    assert ([topic.topic_name for topic in second.topic_states], second.type) == (["payments"], 0)
    assert second.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE


def test_the_inter_broker_listener_can_be_named() -> None:
    batch = RequestBatch(3, 7, "OUTSIDE")
    batch.add_leader_and_isr([1], "orders", ORDERS, partition(leader=2), is_new=False)
    ((_, request),) = batch.build(LIVE)
    assert isinstance(request, LeaderAndIsrRequest)
    assert request.live_leaders == [LeaderAndIsrLiveLeader(2, "example", 9002)]


def test_nothing_said_is_nothing_sent() -> None:
    assert RequestBatch(3, 7).build(LIVE) == []


def test_brokers_receive_incarnations_and_eligible_replicas() -> None:
    """R41, R42; in tagged fields, which Kafka skips."""
    registration = replace(
        partition(),
        in_sync_epochs={1: 101},
        eligible_leader_replicas=(4,),
        eligible_leader_epochs={4: 55},
        last_known_eligible=(2,),
    )
    batch = RequestBatch(3, 7)
    batch.add_leader_and_isr([1], "orders", ORDERS, registration, is_new=False)
    batch.add_metadata([1], [("orders", ORDERS, registration)])
    leadership, metadata = (
        decode(type(request), 7, bytes(encode(request, 7))) for request in requests_of(batch.build(LIVE), 1)
    )
    assert isinstance(leadership, LeaderAndIsrRequest)
    (state,) = leadership.topic_states[0].partition_states
    assert (list(state.isr_epochs), list(state.elr), list(state.elr_epochs)) == ([101, -1], [4], [55])
    assert isinstance(metadata, UpdateMetadataRequest)
    (known,) = metadata.topic_states[0].partition_states
    assert (list(known.elr), list(known.last_known_elr)) == ([4], [2])


def test_metadata_for_several_brokers_is_built_and_encoded_once() -> None:
    """Otherwise a controller would do partitions times brokers work, at its start for all partitions."""
    batch = RequestBatch(3, 7)
    batch.add_metadata([1, 2, 3], [("orders", ORDERS, partition(index)) for index in range(5)])
    batch.add_metadata([2], [("payments", PAYMENTS, partition())])
    first, second, third = (request for _, request in batch.build(LIVE) if isinstance(request, UpdateMetadataRequest))
    assert first.topic_states is third.topic_states
    assert [topic.topic_name for topic in second.topic_states] == ["orders", "payments"]
    encoded = [encode(request, 8) for request in (first, second, third)]
    assert [encode(decode(UpdateMetadataRequest, 8, each), 8) for each in encoded] == encoded
    shared = first.topic_states
    assert isinstance(shared, SharedList)
    assert len(shared.encoded) == 1


def test_a_later_state_of_a_partition_wins_for_the_brokers_that_get_both() -> None:
    batch = RequestBatch(3, 7)
    batch.add_metadata([1, 2], [("orders", ORDERS, partition(leader_epoch=5))])
    batch.add_metadata([1], [("orders", ORDERS, partition(leader_epoch=6))])
    batch.add_metadata([1, 2], ())
    epochs = {
        broker_id: request.topic_states[0].partition_states[0].leader_epoch
        for broker_id, request in batch.build(LIVE)
        if isinstance(request, UpdateMetadataRequest)
    }
    assert epochs == {1: 6, 2: 5}
