"""Snapshots of a cluster, what differs between two, and the events that this makes."""

from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.console.snapshot import Snapshot, as_json, difference, snapshot_of
from tidelog.console.timeline import MAX_AGE_MS, MAX_EVENTS, Kind, Timeline
from tidelog.types import ZERO_UUID, BrokerId


def metadata(
    *brokers: BrokerId, leaders: list[int], in_sync: tuple[int, ...] = (1, 2, 3), controller: int = 1
) -> ClusterMetadata:
    partitions = {
        number: PartitionMetadata(number, leader, 4, (1, 2, 3), in_sync, ()) for number, leader in enumerate(leaders)
    }
    return ClusterMetadata(
        1,
        "tide",
        controller,
        {each: BrokerMetadata(each, Address("localhost", 9000 + each), None) for each in brokers},
        {"orders": TopicMetadata("orders", ZERO_UUID, False, partitions)},
    )


def taken(found: ClusterMetadata, before: Snapshot | None = None, at_ms: int = 0) -> Snapshot:
    return snapshot_of(found, before or Snapshot(), at_ms)


def test_a_broker_that_is_gone_stays_as_absent() -> None:
    before = taken(metadata(1, 2, 3, 4, leaders=[1]))
    after = taken(metadata(1, 2, leaders=[1]), before)
    assert {broker_id: broker.is_up for broker_id, broker in after.brokers.items()} == {
        1: True, 2: True, 3: False, 4: False,
    }  # fmt: skip


def test_the_difference_names_only_what_changed() -> None:
    before = taken(metadata(1, 2, 3, leaders=[1, 2]))
    after = taken(metadata(1, 2, 3, leaders=[1, 3]), before)
    changed = difference(before, after)
    assert changed is not None
    assert changed["partitions"] == [["orders", 1, 3, 4, (1, 2, 3), (1, 2, 3), False]]
    assert difference(after, after._replace(at_ms=9)) is None


def test_a_deleted_topic_is_removed_from_the_page() -> None:
    before = taken(metadata(1, 2, 3, leaders=[1]))
    changed = difference(before, before._replace(partitions={}))
    assert changed is not None
    assert changed["removed"] == [("orders", 0)]


def test_the_whole_snapshot_has_every_partition() -> None:
    shown = as_json(taken(metadata(1, 2, 3, leaders=[1, 2, 3])))
    assert shown["controller"] == 1
    assert len(shown["partitions"]) == 3  # type: ignore[arg-type]


def test_a_failover_is_reported_in_sentences() -> None:
    before = taken(metadata(1, 2, 3, leaders=[2, 1]))
    after = taken(metadata(1, 3, leaders=[1, -1], in_sync=(1, 3), controller=3), before, 500)
    assert [(event.kind, event.text) for event in Timeline().observe(before, after)] == [
        (Kind.BROKER, "Broker 2 is gone. It led 1 partition."),
        (Kind.CONTROLLER, "Controller: broker 1 -> broker 3."),
        (Kind.ELECTION, "orders-0: leader 2 -> 1, epoch 4."),
        (Kind.LEADERLESS, "orders-1 has no leader: it can be neither read nor written."),
        (Kind.SHRINK, "orders-0: replica 2 fell out of sync."),
        (Kind.SHRINK, "orders-1: replica 2 fell out of sync."),
    ]


def test_many_events_of_a_kind_are_one_sentence() -> None:
    before = taken(metadata(1, 2, 3, leaders=[2] * 2000))
    after = taken(metadata(1, 2, 3, leaders=[1] * 2000), before)
    assert [event.text for event in Timeline().observe(before, after)] == ["2,000 partitions changed leader."]


def test_the_first_snapshot_and_another_cluster_have_no_events() -> None:
    first = taken(metadata(1, 2, 3, leaders=[1]))
    assert Timeline().observe(Snapshot(), first) == []
    assert Timeline().observe(first, first._replace(cluster_id="other", partitions={})) == []


def test_the_timeline_is_bounded_by_age_and_number() -> None:
    timeline = Timeline()
    for number in range(MAX_EVENTS + 10):
        timeline.note(number, Kind.TOPIC, "x")
    assert len(list(timeline)) == MAX_EVENTS
    timeline.note(MAX_AGE_MS + MAX_EVENTS + 100, Kind.TOPIC, "late")
    assert [event.text for event in timeline] == ["late"]
