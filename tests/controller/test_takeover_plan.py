"""Topics, replicas and leaders that follow from the logs of all brokers when the store is empty."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.inventory import (
    Backup,
    FoundLog,
    Inventory,
    decode_inventory,
    encode_inventory,
    part_name,
    parts_by_broker,
)
from tidelog.controller.takeover_plan import (
    SPARE_LEADER_EPOCHS,
    SPARE_PRODUCER_IDS,
    PlannedPartition,
    TakeoverPlan,
    plan_takeover,
)
from tidelog.types import BrokerId, TopicPartition, Uuid

ORDERS_ID: Uuid = bytes(range(16))
OTHER_ID: Uuid = bytes(16 * [7])


def log(
    epoch: int, end: int, partition: int = 0, *, topic: str = "orders", topic_id: Uuid | None = ORDERS_ID
) -> FoundLog:
    return FoundLog(TopicPartition(topic, partition), topic_id, epoch, 0, end)


def plan(*inventories: Inventory) -> TakeoverPlan:
    return plan_takeover({each.broker_id: each for each in inventories})


def partitions(found: TakeoverPlan) -> list[PlannedPartition]:
    (topic,) = found.topics
    return list(topic.partitions)


def reason_of(found: TakeoverPlan) -> str:
    (problem,) = found.problems
    return problem.sentence


def test_nothing_is_taken_over_where_nothing_is() -> None:
    assert plan(Inventory(1), Inventory(2)) == TakeoverPlan((), -1, ())


def test_the_newest_epoch_wins_and_then_the_longest_log() -> None:
    (found,) = partitions(plan(Inventory(1, [log(4, 90)]), Inventory(2, [log(5, 70)]), Inventory(3, [log(5, 80)])))
    assert found == PlannedPartition(0, replicas=(3, 1, 2), in_sync_replicas=(3,), leader_epoch=6 + SPARE_LEADER_EPOCHS)


def test_equal_logs_are_in_sync_and_leaders_are_spread() -> None:
    brokers = [Inventory(each, [log(2, 10, index) for index in range(6)]) for each in (1, 2, 3)]
    found = partitions(plan(*brokers))
    assert [each.replicas[0] for each in found] == [1, 2, 3, 1, 2, 3]
    assert all(sorted(each.in_sync_replicas) == [1, 2, 3] for each in found)


def test_epochs_and_producer_ids_are_above_all_that_was_noted() -> None:
    backup = Backup(frozenset({1, 2}), leader_epoch=9, last_producer_id=2999)
    found = plan(Inventory(1, [log(4, 90)], backup, last_producer_id=17), Inventory(2, [], backup))
    assert partitions(found)[0].leader_epoch == 10 + SPARE_LEADER_EPOCHS  # clients may have heard of some since
    assert found.last_producer_id == 2999
    found = plan(Inventory(1, [log(4, 90)], Backup(frozenset({1})), last_producer_id=17))
    assert found.last_producer_id == 17
    without_notes = plan(Inventory(1, [log(4, 90)], last_producer_id=17))
    assert without_notes.last_producer_id == 17 + SPARE_PRODUCER_IDS


def test_settings_come_from_the_newest_backup_that_somebody_has() -> None:
    old = Backup(frozenset({1}), 3, written_ms=9, topic_configs={"orders": {"cleanup.policy": "delete"}})
    new = Backup(frozenset({1}), 4, written_ms=5, topic_configs={"orders": {"cleanup.policy": "compact"}})
    (topic,) = plan(Inventory(1, [log(1, 1)], old), Inventory(2, [], new)).topics
    assert topic.configs == {"cleanup.policy": "compact"}
    (topic,) = plan(Inventory(1, [log(1, 1)])).topics
    assert topic.configs is None


def test_dynamic_settings_come_from_the_newest_backup_too() -> None:
    noted = Backup(frozenset({1}), broker_configs={"<default>": {"log.retention.ms": "-1"}}, group_configs={"g": {}})
    found = plan(Inventory(1, [log(1, 1)], noted))
    assert found.broker_configs == {"<default>": {"log.retention.ms": "-1"}}
    assert found.group_configs == {"g": {}}


def test_a_member_that_does_not_run_is_waited_for() -> None:
    found = plan(Inventory(1, [log(1, 5)], Backup(frozenset({1, 2, 3}))))
    assert reason_of(found).startswith(
        "brokers 2, 3 of this cluster are not running, and may hold newer records. Start them"
    )
    assert found.problems[0].may_pass
    assert found.obstacle(is_forced=True, has_waited=False) is not None
    assert found.obstacle(is_forced=True, has_waited=True) is None
    assert found.obstacle(is_forced=False, has_waited=True) is not None


def test_a_member_whose_directories_are_new_is_no_proof_that_it_held_nothing() -> None:
    backup = Backup(frozenset({1, 2}))
    found = plan(Inventory(1, [log(1, 5)], backup), Inventory(2))
    assert reason_of(found).startswith("broker 2 held replicas, and its log directories are new.")
    found = plan(Inventory(1, [log(1, 5)], backup), Inventory(2, [], backup, empty_directories=["/b"]))
    assert reason_of(found).startswith("broker 2 held replicas, and /b is new.")
    found = plan(Inventory(1, [log(1, 5)], backup), Inventory(2, [], backup, offline_directories=["/b"]))
    assert reason_of(found).startswith("broker 2 cannot read /b")
    assert not found.problems[0].may_pass


def test_two_topics_of_one_name_are_never_merged() -> None:
    found = plan(Inventory(1, [log(1, 5)]), Inventory(2, [log(1, 5, topic_id=OTHER_ID)]))
    assert reason_of(found).startswith("there are two topics named orders: AAECAwQFBgcICQoLDA0ODw on broker 1 and")
    assert found.obstacle(is_forced=True, has_waited=True) is not None


def test_a_partition_that_nobody_holds_is_waited_for() -> None:
    found = plan(Inventory(1, [log(1, 5, 0), log(1, 5, 2)]))
    assert reason_of(found).startswith("no running broker holds partition 1 of topic orders, of which there are 0, 2.")
    assert [each.replicas for each in partitions(found)] == [(1,), (1,), (1,)]


def test_a_broker_that_listed_nothing_holds_up_the_takeover() -> None:
    found = plan_takeover({1: Inventory(1, [log(1, 5)])}, silent=[2])
    assert reason_of(found).startswith("broker 2 is running, but did not list")


def test_directories_that_no_topic_may_be_called_after_are_left_alone() -> None:
    assert plan(Inventory(1, [log(1, 5, topic="a b")])).topics == ()


@given(st.permutations([1, 2, 3]), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=3, max_size=3))
def test_the_plan_does_not_depend_on_who_listed_its_logs_first(
    order: list[BrokerId], logs: list[tuple[int, int]]
) -> None:
    inventories = {each: Inventory(each, [log(*logs[each - 1])]) for each in (1, 2, 3)}
    shuffled = {each: inventories[each] for each in order}
    found = plan_takeover(shuffled)
    assert found == plan_takeover(inventories)
    (partition,) = partitions(found)
    assert logs[partition.replicas[0] - 1] == max(logs)
    assert {logs[each - 1] for each in partition.in_sync_replicas} == {max(logs)}
    assert partition.leader_epoch > max(epoch for epoch, _ in logs)


@pytest.mark.parametrize("count", [0, 1, 30_000])
def test_an_inventory_is_written_in_parts_that_a_store_takes(count: int) -> None:
    names = [f"{number:x}-{hash(str(number)) & 0xFFFFFFFFFFFF:x}" for number in range(count)]
    logs = [log(number, number * 3, topic=name) for number, name in enumerate(names)]
    inventory = Inventory(7, logs, Backup(frozenset({7}), topic_configs={"a": {"b": "c"}}), 3, 99, ["/a"], ["/b"])
    parts = encode_inventory(inventory)
    assert all(len(part) <= 512 * 1024 for part in parts)
    assert decode_inventory(parts) == inventory
    names = [part_name(7, index, len(parts)) for index in range(len(parts))]
    assert parts_by_broker([*reversed(names), "8-0-of-2"]) == {7: names}


def test_an_epoch_without_records_makes_no_log_newer() -> None:
    longer = FoundLog(TopicPartition("orders", 0), ORDERS_ID, 0, 0, 25, 25, ((0, 0),))
    led_since = FoundLog(TopicPartition("orders", 0), ORDERS_ID, 0, 0, 5, 5, ((0, 0), (3, 5)))
    found = plan(Inventory(1, [longer]), Inventory(2, [led_since]))
    (partition,) = partitions(found)
    assert (partition.replicas[0], partition.in_sync_replicas) == (1, (1,))
    assert partition.leader_epoch == 4 + SPARE_LEADER_EPOCHS
    assert found.problems == ()


@pytest.mark.parametrize(("high_watermark", "is_decided"), [(5, True), (6, False)])
def test_committed_records_that_the_newest_log_lacks_are_not_given_up(high_watermark: int, is_decided: bool) -> None:
    """What was not committed is cut by the newer leader, as ever (R27)."""
    older = FoundLog(TopicPartition("orders", 0), ORDERS_ID, 0, 0, 25, high_watermark, ((0, 0),))
    newer = FoundLog(TopicPartition("orders", 0), ORDERS_ID, 1, 0, 30, 30, ((0, 0), (1, 5)))
    found = plan(Inventory(1, [older]), Inventory(2, [newer]))
    assert partitions(found)[0].replicas[0] == 2
    assert (found.obstacle(is_forced=False, has_waited=True) is None) == is_decided
    assert found.obstacle(is_forced=True, has_waited=True) is None
    unclean = Backup(frozenset({1, 2}), topic_configs={"orders": {"unclean.leader.election.enable": "true"}})
    assert plan(Inventory(1, [older], unclean), Inventory(2, [newer], unclean)).problems == ()


def test_a_log_that_retention_has_emptied_has_nothing_that_another_could_lack() -> None:
    """Its epochs went with its records, while another replica has not deleted the last ones yet."""
    emptied = log(-1, 15)._replace(log_start_offset=15, high_watermark=15)
    longer = log(2, 15)._replace(log_start_offset=14, high_watermark=15, epochs=((2, 14), (4, 15)))
    found = plan(Inventory(1, [emptied]), Inventory(2, [longer]))
    assert not found.problems
    assert partitions(found)[0].replicas[0] == 2


def test_a_directory_that_is_no_longer_there_is_missed() -> None:
    backup = Backup(frozenset({1, 2}), directory_ids=frozenset({"a", "b"}))
    found = plan(Inventory(1, [log(1, 5)], backup), Inventory(2, [], backup, missing_directories=["b"]))
    assert "broker 2 held replicas, and a log directory that it had is not in log.dirs any more" in reason_of(found)
