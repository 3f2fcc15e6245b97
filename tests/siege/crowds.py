"""Attacks by the members, subscriptions and producers of one group or partition, multiplied by what requests name."""

import time

from tests.siege.attacks import MAX_ELEMENTS, Attacker, attack, names
from tests.siege.costly_arguments import at_coordinator
from tests.siege.floods import flood
from tests.siege.wire import Asking, frame
from tidelog.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.protocol.records import Record, build_batch

CONFIG_OF_BROKER = 4
CROWD = 2_000


def _for_half_the_time(attacker: Attacker) -> Attacker:
    return Attacker(attacker.target._replace(seconds=attacker.target.seconds / 2))


def _static_join(group_id: str, number: int, rebalance_timeout_ms: int = 60_000) -> bytes:
    return frame(
        JoinGroupRequest(
            group_id=group_id, session_timeout_ms=20_000, rebalance_timeout_ms=rebalance_timeout_ms, member_id="",
            group_instance_id=f"i{number}", protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        ),
        5,
    )  # fmt: skip


@attack("described-crowd", "DescribeGroups that names a group of 2,000 members 16,000 times")
def _described_crowd(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "described")
    joins = b"".join(_static_join("described", number) for number in range(attacker.scaled(CROWD)))
    _for_half_the_time(attacker).push(attacker.connections(1), joins, reads=True)
    attacker.ask_repeatedly(DescribeGroupsRequest(groups=["described"] * attacker.scaled(MAX_ELEMENTS)), 5)


@attack("static-comebacks", "2,000 static members of one group, then one of them that comes back, as often as fits")
def _static_comebacks(attacker: Attacker) -> None:
    attacker = at_coordinator(attacker, "static")
    joins = b"".join(_static_join("static", number, 1_000) for number in range(attacker.scaled(CROWD)))
    _for_half_the_time(attacker).push(attacker.connections(1), joins, reads=True)
    flood(attacker, 5, lambda number: _static_join("static", number % 50, 1), per_round=50)


@attack("expression-crowd", "consumers of one group with expressions of 7 KB, each another, while topics are created")
def _expression_crowd(attacker: Attacker) -> None:
    alternatives = "|".join(f"x{number}.*" for number in range(1_000))

    def join(number: int) -> bytes:
        return frame(
            ConsumerGroupHeartbeatRequest(
                group_id="expressions", member_id=f"m{number}", member_epoch=0, rebalance_timeout_ms=60_000,
                topic_partitions=[], subscribed_topic_regex=f"t{number}.*|{alternatives}",
            ),
            1,
        )  # fmt: skip

    flood(_for_half_the_time(at_coordinator(attacker, "expressions")), 5, join, per_round=10)
    created = names(10)
    with Asking(attacker.target.address, 60) as asking:
        for name in created:
            request = CreateTopicsRequest(topics=[CreatableTopic(f"x{name}", 1, 1, [], [])], timeout_ms=10_000)
            asking.ask(request, 5, CreateTopicsResponse)
            Attacker(at_coordinator(attacker, "expressions").target._replace(seconds=0.3)).push(
                attacker.connections(1), join(1), reads=True
            )
        topics = [f"x{name}" for name in created]
        asking.ask(DeleteTopicsRequest(topic_names=topics, timeout_ms=1), 5, DeleteTopicsResponse)


@attack("other-subscriptions", "consumers of one group with 2,000 names of topics, always others")
def _other_subscriptions(attacker: Attacker) -> None:
    def join(number: int) -> bytes:
        return frame(
            ConsumerGroupHeartbeatRequest(
                group_id="others", member_id=f"m{number}", member_epoch=0, rebalance_timeout_ms=60_000,
                topic_partitions=[], subscribed_topic_names=[f"{number}-{name}" for name in names(2_000, 6)],
            ),
            1,
        )  # fmt: skip

    flood(at_coordinator(attacker, "others"), 5, join, per_round=10)


@attack("described-producers", "DescribeProducers that names a partition of 2,000 producers 3,000 times")
def _described_producers(attacker: Attacker) -> None:
    def write(number: int) -> bytes:
        record = Record(0, int(time.time() * 1000), None, b"")
        batch = build_batch([record], producer_id=number, producer_epoch=0, base_sequence=0)
        written = PartitionProduceData(index=attacker.target.partition, records=memoryview(batch))
        topics = [TopicProduceData(name=attacker.target.topic, partition_data=[written])]
        return frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)

    flood(_for_half_the_time(attacker), 2, write, per_round=CROWD)
    wanted = [TopicRequest(attacker.target.topic, [attacker.target.partition])] * attacker.scaled(3_000)
    attacker.ask_repeatedly(DescribeProducersRequest(topics=wanted), 0)


@attack("named-settings", "DescribeConfigs of a broker that names 16,000 settings, none of which exists")
def _named_settings(attacker: Attacker) -> None:
    with Asking(attacker.target.address) as asking:
        brokers = asking.ask(MetadataRequest(topics=[]), 9, MetadataResponse).brokers
    port = int(attacker.target.address.rpartition(":")[2])
    (broker_id,) = (broker.node_id for broker in brokers if broker.port == port)
    wanted = [DescribeConfigsResource(CONFIG_OF_BROKER, str(broker_id), names(attacker.scaled(MAX_ELEMENTS)))]
    attacker.ask_repeatedly(DescribeConfigsRequest(resources=wanted), 4)
