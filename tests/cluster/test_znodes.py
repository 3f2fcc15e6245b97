"""Contents of nodes. Apache Kafka 3.9 was seen to read such content; /controller and /cluster/id are its bytes."""

import json
from dataclasses import replace

import pytest

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, PartitionRegistration, Topic
from tidelog.cluster.znodes import ClusterNode, MalformedNode, ProducerIdBlock
from tidelog.config.listeners import Endpoint
from tidelog.types import ZERO_UUID, TopicPartition, uuid_from_text

TOPIC_ID = bytes(range(16))
PARTITIONS = (
    PartitionRegistration(0, (1, 2), 1, 5, (1,), 4, 7),
    PartitionRegistration(1, (2, 1), 2, 0, (2, 1), 4, 8, adding_replicas=(2,), removing_replicas=(1,)),
)


def test_a_broker_registration() -> None:
    endpoints = (
        Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT"),
        Endpoint("INSIDE", "::1", 1, "SSL"),
    )
    broker = BrokerRegistration(3, endpoints, "rack", 77)
    data = znodes.encode_broker(broker, 123)
    assert data == (
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","INSIDE":"SSL"},'
        b'"endpoints":["PLAINTEXT://host:9092","INSIDE://[::1]:1"],"jmx_port":-1,"port":9092,"host":"host",'
        b'"version":5,"timestamp":"123","rack":"rack"}'
    )
    assert znodes.decode_broker(3, data, epoch=77) == broker


def test_a_topic_with_its_partitions() -> None:
    data = znodes.encode_topic(TOPIC_ID, PARTITIONS)
    assert data == (
        b'{"removing_replicas":{"1":[1]},"partitions":{"0":[1,2],"1":[2,1]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{"1":[2]},"version":3}'
    )
    assert znodes.partition_count("orders", data) == 2
    states = [(znodes.encode_state(partition), partition.version) for partition in PARTITIONS]
    assert znodes.decode_topic("orders", data, 9, states, {"a": "b"}) == Topic(
        "orders", TOPIC_ID, PARTITIONS, {"a": "b"}, 9
    )


def test_a_partition_without_a_state_has_no_leader() -> None:
    topic = znodes.decode_topic("orders", b'{"version":3,"partitions":{"0":[1]}}', 0, [None], {})
    assert (topic.topic_id, topic.partitions[0].leader) == (ZERO_UUID, -1)


def test_a_partition_state() -> None:
    assert znodes.encode_state(PARTITIONS[0]) == (
        b'{"controller_epoch":4,"leader":1,"version":1,"leader_epoch":5,"isr":[1]}'
    )


def test_settings() -> None:
    data = znodes.encode_config({"retention.ms": "5"})
    assert data == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert znodes.decode_config(data, "/config/topics/a") == {"retention.ms": "5"}
    assert znodes.decode_config(b"", "/config/topics/a") == {}
    assert znodes.encode_config_change("topics/a") == b'{"version":2,"entity_path":"topics/a"}'


def test_a_config_change_names_its_entity_in_either_form() -> None:
    assert znodes.decode_config_change(znodes.encode_config_change("brokers/1"), "/c") == "brokers/1"
    assert znodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"a"}', "/c") == "topics/a"
    with pytest.raises(MalformedNode, match="entity_path"):
        znodes.decode_config_change(b'{"version":2}', "/c")


def test_lists_of_partitions() -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("b", 7)]
    data = znodes.encode_partition_list(partitions)
    assert data == b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":7}]}'
    assert znodes.decode_partition_list(data, znodes.PREFERRED_REPLICA_ELECTION) == partitions


def test_a_log_directory_event() -> None:
    data = znodes.encode_log_directory_event(3)
    assert data == b'{"version":1,"broker":3,"event":1}'
    assert znodes.decode_log_directory_event(data, "/log_dir_event_notification/log_dir_event_0000000000") == 3


def test_replicas_whose_logs_are_still_to_be_deleted() -> None:
    """R37: a key that Kafka does not know, and only where there are any."""
    removed = PartitionRegistration(0, (4, 5), 4, 0, (4, 5), removed_replicas=(1, 2))
    data = znodes.encode_topic(b"-" * 16, [removed, PartitionRegistration(1, (4, 5), 4, 0, (4, 5))])
    assert json.loads(data)["removed_replicas"] == {"0": [1, 2]}
    found = znodes.decode_topic("orders", data, 0, [None, None], {})
    assert [each.removed_replicas for each in found.partitions] == [(1, 2), ()]
    assert b"removed" not in znodes.encode_topic(b"-" * 16, [PartitionRegistration(0, (4, 5), 4, 0, (4, 5))])


def test_a_reassignment() -> None:
    replicas = {TopicPartition("a", 0): (1, 2), TopicPartition("b", 7): (3,)}
    data = znodes.encode_reassignment(replicas)
    assert data == (
        b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2]},'
        b'{"topic":"b","partition":7,"replicas":[3]}]}'
    )
    assert znodes.decode_reassignment(data) == replicas


@pytest.mark.parametrize("data", [b"", b"{}", b'{"partitions":3}', b'{"partitions":[{"topic":"a"}]}'])
def test_a_malformed_list_of_partitions_is_named(data: bytes) -> None:
    with pytest.raises(MalformedNode, match="/isr_change_notification/isr_change_1"):
        znodes.decode_partition_list(data, "/isr_change_notification/isr_change_1")
    with pytest.raises(MalformedNode, match="/admin/reassign_partitions"):
        znodes.decode_reassignment(data)


def test_cluster_controller_and_producer_ids() -> None:
    assert znodes.encode_cluster(ClusterNode("abc")) == b'{"version":"1","id":"abc"}'
    assert znodes.decode_cluster_id(b'{"version":"1","id":"abc"}') == "abc"
    restored = ClusterNode("abc", restored_by=2)
    assert znodes.decode_cluster(znodes.encode_cluster(restored)) == restored
    assert znodes.encode_controller(3, 99) == (b'{"version":2,"brokerid":3,"timestamp":"99","kraftControllerEpoch":-1}')
    assert znodes.decode_controller(znodes.encode_controller(3, 99)) == 3
    assert znodes.encode_controller_epoch(5) == b"5"
    assert znodes.decode_controller_epoch(b"5") == 5
    block = ProducerIdBlock(3, 1000, 1999)
    data = znodes.encode_producer_id_block(block)
    assert data == b'{"version":1,"broker":3,"block_start":"1000","block_end":"1999"}'
    assert znodes.decode_producer_id_block(data) == block


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":3}', b'{"partitions":{"1":[1]}}', b'{"partitions":3}'])
def test_a_node_that_kafka_would_not_write_is_named(data: bytes) -> None:
    with pytest.raises(MalformedNode, match="/brokers/topics/orders"):
        znodes.decode_topic("orders", data, 0, [None], {})


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"partitions":3}'])
def test_a_topic_whose_partitions_cannot_be_counted_is_named(data: bytes) -> None:
    with pytest.raises(MalformedNode, match="/brokers/topics/orders"):
        znodes.partition_count("orders", data)


@pytest.mark.parametrize("data", [b"{}", b'{"id":3', b"\xff"])
def test_other_malformed_nodes_are_named_too(data: bytes) -> None:
    for decode in (znodes.decode_cluster_id, znodes.decode_controller, znodes.decode_producer_id_block):
        with pytest.raises(MalformedNode):
            decode(data)
    with pytest.raises(MalformedNode, match="/brokers/ids/1"):
        znodes.decode_broker(1, data, 0)
    with pytest.raises(MalformedNode, match="/controller_epoch"):
        znodes.decode_controller_epoch(data)


def test_paths_are_those_of_kafka() -> None:
    assert znodes.state_path("orders", 3) == "/brokers/topics/orders/partitions/3/state"
    assert znodes.broker_path(1) == "/brokers/ids/1"
    assert znodes.topic_config_path("orders") == "/config/topics/orders"
    assert znodes.broker_config_path("<default>") == "/config/brokers/<default>"


def test_an_id_is_read_as_it_was_written() -> None:
    assert uuid_from_text("AAECAwQFBgcICQoLDA0ODw") == TOPIC_ID


def test_a_state_has_the_incarnations_of_in_sync_replicas_where_they_are_known() -> None:
    partition = replace(PARTITIONS[0], in_sync_replicas=(1, 2, 3), in_sync_epochs={3: 7, 2: 9, 4: 11})
    state = znodes.encode_state(partition)
    assert b'"isr":[1,2,3],"isr_epochs":[-1,9,7]' in state
    assert znodes.decode_state("t", PARTITIONS[0], state, 0).in_sync_epochs == {2: 9, 3: 7}


def test_a_state_names_who_is_eligible_and_in_which_incarnation() -> None:
    """R42; Kafka passes over what it does not know."""
    partition = replace(
        PARTITIONS[0],
        in_sync_epochs={1: 5},
        eligible_leader_replicas=(2, 3),
        eligible_leader_epochs={2: 9},
        in_sync_replicas=(1,),
    )
    state = znodes.encode_state(partition)
    assert b'"isr":[1],"isr_epochs":[5],"elr":[2,3],"elr_epochs":[9,-1]}' in state
    found = znodes.decode_state("t", replace(PARTITIONS[0], eligible_leader_replicas=(7,)), state, 0)
    assert (found.eligible_leader_replicas, found.eligible_leader_epochs) == ((2, 3), {2: 9})
    assert [found.recorded_epoch(each) for each in (1, 2, 3)] == [5, 9, None]
    without = znodes.encode_state(replace(partition, eligible_leader_replicas=()))
    assert b"elr" not in without
    assert znodes.decode_state("t", found, without, 0).eligible_leader_replicas == ()


def test_a_registration_names_what_came_before_it_and_its_log_directories() -> None:
    broker = BrokerRegistration(3, (Endpoint("PLAINTEXT", "host", 1, "PLAINTEXT"),), None, 77, 70, ("id-a", "id-b"))
    assert znodes.decode_broker(3, znodes.encode_broker(broker, 1), epoch=77) == broker
    first = replace(broker, previous_epoch=-1, directory_ids=())
    assert b"previous" not in znodes.encode_broker(first, 1)
    assert b"directory" not in znodes.encode_broker(first, 1)


@pytest.mark.parametrize("directory_id", ["", "a/b", "..", "\ud800", 5, None])
def test_the_id_of_a_log_directory_must_be_the_name_of_a_node(directory_id: object) -> None:
    content = json.loads(znodes.encode_broker(BrokerRegistration(3, (), None), 1)) | {"directory_ids": [directory_id]}
    with pytest.raises(znodes.MalformedNode):
        znodes.decode_broker(3, json.dumps(content).encode(), 1)
