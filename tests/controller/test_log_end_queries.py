"""A controller that asks brokers for the ends of their logs before it elects one that restarted uncleanly (R42)."""

from tests.controller.controlled_cluster import ControlledCluster, on_virtual_time
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.types import TopicPartition

WATCHER = 9
ORDERS = ("orders", 0)


async def all_down(min_in_sync: int = 2) -> ControlledCluster:
    """Brokers 1 to 3 host the partition, and are gone; broker 9 is controller and hosts nothing."""
    cluster = await ControlledCluster.start((WATCHER,))
    for broker_id in (1, 2, 3):
        await cluster.start_broker(broker_id, directory_ids=(f"directory-of-{broker_id}",))
    await cluster.create_topic("orders", [(1, 2, 3)], min_insync_replicas=str(min_in_sync))
    await cluster.kill_broker(1, 2, 3)
    cluster.forget_requests()
    return cluster


async def leader(cluster: ControlledCluster) -> int:
    return (await cluster.partition("orders")).leader


def questions(cluster: ControlledCluster, broker_id: int) -> int:
    return len(cluster.requests(DescribeLogDirsRequest, broker_id))


def test_the_best_of_enough_answers_leads() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        cluster.brokers.log_ends = {1: {ORDERS: (0, 8)}, 2: {ORDERS: (0, 9)}, 3: {ORDERS: (0, 10)}}
        await cluster.start_broker(1, directory_ids=("directory-of-1",))
        assert (await leader(cluster), questions(cluster, 1)) == (-1, 1)
        await cluster.start_broker(2, directory_ids=("directory-of-2",))
        assert (await leader(cluster), questions(cluster, 1), questions(cluster, 2)) == (2, 1, 1)
        found = await cluster.partition("orders")
        assert (found.in_sync_replicas, found.eligible_leader_replicas) == ((2,), (1, 3))
        assert found.in_sync_epochs == {2: cluster.controllers[WATCHER].context.brokers[2].epoch}
        assert cluster.controllers[WATCHER].context.responses == {}
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_is_asked_after_it_has_learned_that_there_is_no_leader() -> None:
    """So that what it answers stays so."""

    async def scenario() -> None:
        cluster = await all_down()
        await cluster.start_broker(1, directory_ids=("directory-of-1",))
        kinds = [type(each.request) for each in cluster.brokers.sent if each.broker_id == 1]
        assert kinds.index(LeaderAndIsrRequest) < kinds.index(DescribeLogDirsRequest)
        assert cluster.sent_leadership(1, "orders").leader == -1
        await cluster.stop()

    on_virtual_time(scenario)


def test_an_answer_of_an_earlier_life_does_not_count() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        cluster.brokers.log_ends = {1: {ORDERS: (0, 99)}, 2: {ORDERS: (0, 9)}}
        cluster.brokers.silent = {1}
        await cluster.start_broker(1, directory_ids=("directory-of-1",))
        late = cluster.brokers.held_back[-1]
        await cluster.kill_broker(1)
        cluster.brokers.silent = set()
        cluster.brokers.log_ends[1] = {ORDERS: (0, 1)}
        await cluster.start_broker(1, directory_ids=("directory-of-1",))
        late()
        await cluster.settle()
        assert questions(cluster, 1) == 2
        await cluster.start_broker(2, directory_ids=("directory-of-2",))
        assert await leader(cluster) == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_an_answer_that_comes_when_there_is_a_leader_changes_nothing() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        cluster.brokers.log_ends = {1: {ORDERS: (0, 99)}, 2: {ORDERS: (0, 9)}, 3: {ORDERS: (0, 9)}}
        cluster.brokers.silent = {1}
        for broker_id in (1, 2, 3):
            await cluster.start_broker(broker_id, directory_ids=(f"directory-of-{broker_id}",))
        before = await cluster.partition("orders")
        assert before.leader == 2
        for late in cluster.brokers.held_back:
            late()
        await cluster.settle()
        assert await cluster.partition("orders") == before
        assert cluster.controllers[WATCHER].context.responses == {}
        await cluster.stop()

    on_virtual_time(scenario)


def test_brokers_that_cannot_be_asked_are_elected_as_before() -> None:
    """Apache Kafka 3.9"""

    async def scenario() -> None:
        cluster = await all_down()
        await cluster.start_broker(3)
        assert await leader(cluster) == -1
        await cluster.start_broker(2)
        assert await leader(cluster) == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_with_a_new_log_directory_is_not_asked_and_not_elected() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        cluster.brokers.log_ends = {1: {}, 2: {ORDERS: (0, 9)}}
        await cluster.start_broker(1, directory_ids=("another",))
        assert (await leader(cluster), questions(cluster, 1)) == (-1, 0)
        await cluster.start_broker(2, directory_ids=("directory-of-2",))
        assert await leader(cluster) == 2
        await cluster.stop()

    on_virtual_time(scenario)


async def expect_leader(expected: int, *, before: tuple[str, ...], after: tuple[str, ...]) -> None:
    """Of a partition whose only in-sync replica had log directories, and came back with others and without a log."""
    cluster = await ControlledCluster.start((WATCHER,))
    await cluster.start_broker(1, directory_ids=("first",))
    await cluster.kill_broker(1)
    await cluster.start_broker(1, directory_ids=before)
    await cluster.create_topic("orders", [(1, WATCHER)], min_insync_replicas="2")
    epoch = cluster.controllers[WATCHER].context.brokers[1].epoch
    await cluster.set_in_sync("orders", 0, (1,), {1: epoch})
    await cluster.announce("orders", 0)
    await cluster.kill_broker(1)
    cluster.brokers.log_ends = {1: {}}
    await cluster.start_broker(1, directory_ids=after)
    assert await leader(cluster) == expected
    await cluster.stop()


def test_a_log_directory_that_was_added_does_not_stand_for_a_lost_one() -> None:
    """Seed 120615: the leader's disk failed before it could create the log, and the other directory was new."""
    on_virtual_time(lambda: expect_leader(1, before=("mine",), after=("mine", "added")))


def test_a_log_directory_that_replaces_one_of_the_recorded_incarnation_stands_for_a_lost_one() -> None:
    on_virtual_time(lambda: expect_leader(-1, before=("mine", "other"), after=("mine", "new")))


def test_a_new_controller_tells_a_new_log_directory_from_the_one_before() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        cluster.brokers.log_ends = {1: {}, 2: {ORDERS: (0, 9)}}
        await cluster.kill_broker(WATCHER)
        await cluster.start_broker(1, directory_ids=("another",))
        await cluster.start_controller(1)
        assert (await leader(cluster), questions(cluster, 1)) == (-1, 0)
        await cluster.start_broker(2, directory_ids=("directory-of-2",))
        assert await leader(cluster) == 2
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_broker_that_names_the_epoch_that_was_in_sync_as_its_previous_one_is_elected_without_a_question() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        recorded = (await cluster.partition("orders")).in_sync_epochs
        await cluster.start_broker(3, previous_epoch=recorded[3])
        assert (await leader(cluster), questions(cluster, 3)) == (3, 0)
        await cluster.stop()

    on_virtual_time(scenario)


def test_with_a_min_isr_of_one_nobody_is_asked() -> None:
    async def scenario() -> None:
        cluster = await all_down(min_in_sync=1)
        in_sync = (await cluster.partition("orders")).in_sync_replicas
        await cluster.start_broker(in_sync[0])
        assert (await leader(cluster), questions(cluster, in_sync[0])) == (in_sync[0], 0)
        await cluster.stop()

    on_virtual_time(scenario)


def test_a_late_announcement_about_an_incarnation_that_is_gone_is_repaired() -> None:
    """R41: broker 3 came back between the decision of the leader and its announcement."""

    async def scenario() -> None:
        cluster = await ControlledCluster.start((1, 2, 3))
        await cluster.create_topic("orders", [(1, 2, 3)])
        before = (await cluster.partition("orders")).in_sync_epochs
        await cluster.restart_broker(3)
        assert (await cluster.partition("orders")).in_sync_replicas == (1, 2)
        await cluster.set_in_sync("orders", 0, (1, 2, 3), before)
        await cluster.announce("orders", 0)
        found = await cluster.partition("orders")
        assert (found.leader, found.in_sync_replicas) == (1, (1, 2))
        await cluster.stop()

    on_virtual_time(scenario)


def test_brokers_are_asked_again_when_a_reassignment_begins_a_new_leader_epoch() -> None:
    async def scenario() -> None:
        cluster = await all_down()
        cluster.brokers.log_ends = {1: {ORDERS: (0, 8)}, 2: {ORDERS: (0, 9)}}
        await cluster.start_broker(1, directory_ids=("directory-of-1",))
        await cluster.controllers[WATCHER].alter_partition_reassignments({TopicPartition(*ORDERS): (1, 2, WATCHER)})
        await cluster.settle()
        assert (await leader(cluster), questions(cluster, 1)) == (-1, 2)
        await cluster.start_broker(2, directory_ids=("directory-of-2",))
        assert await leader(cluster) == 2
        await cluster.stop()

    on_virtual_time(scenario)
