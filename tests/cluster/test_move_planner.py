"""Plans for moving replicas: what holds for every cluster, by hypothesis, and small examples."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster.move_planner import CannotPlan, ClusterLoad, Goal, PartitionLoad, Plan, plan_moves
from tidelog.types import BrokerId, TopicPartition


def load_of(
    replicas: Sequence[tuple[int, ...]], brokers: int, racks: str = "", sizes: list[int] | None = None
) -> ClusterLoad:
    return ClusterLoad(
        {number: racks[number - 1] if racks else None for number in range(1, brokers + 1)},
        {
            TopicPartition("t", index): PartitionLoad(each, sizes[index] if sizes else 0)
            for index, each in enumerate(replicas)
        },
    )


@st.composite
def clusters(draw: st.DrawFn, replication_factor: int | None = None) -> ClusterLoad:
    brokers = draw(st.integers(1, 6))
    has_racks = draw(st.booleans())
    racks = {each: draw(st.sampled_from("abc")) if has_racks else None for each in range(1, brokers + 1)}
    factor = st.integers(1, min(3, brokers)) if replication_factor is None else st.just(replication_factor)
    replicas = factor.flatmap(
        lambda count: st.lists(st.integers(1, brokers), min_size=count, max_size=count, unique=True)
    )
    partition = st.builds(PartitionLoad, replicas.map(tuple), st.integers(0, 1000))
    loads = draw(st.lists(partition, max_size=14))
    return ClusterLoad(racks, {TopicPartition("t", index): load for index, load in enumerate(loads)})


def applied(cluster: ClusterLoad, plan: Plan) -> ClusterLoad:
    partitions = {
        each: load._replace(replicas=plan.get(each, load.replicas)) for each, load in cluster.partitions.items()
    }
    return cluster._replace(partitions=partitions)


def counts(cluster: ClusterLoad, brokers: Collection[BrokerId] | None = None) -> list[int]:
    found = Counter(each for load in cluster.partitions.values() for each in load.replicas)
    return [found[each] for each in (cluster.racks if brokers is None else brokers)]


def leaders(cluster: ClusterLoad) -> list[int]:
    found = Counter(load.replicas[0] for load in cluster.partitions.values())
    return [found[each] for each in cluster.racks]


def copied(cluster: ClusterLoad, plan: Plan) -> list[tuple[TopicPartition, BrokerId]]:
    return [
        (each, broker)
        for each, replicas in plan.items()
        for broker in replicas
        if broker not in cluster.partitions[each].replicas
    ]


def sharing(racks: Mapping[BrokerId, str | None], replicas: Collection[BrokerId]) -> int:
    return sum(count * count for count in Counter(racks.get(each, each) for each in replicas).values())


@given(clusters(), st.sampled_from(Goal))
def test_every_plan_keeps_the_number_of_replicas_on_different_brokers_and_racks(
    cluster: ClusterLoad, goal: Goal
) -> None:
    for each, replicas in plan_moves(cluster, goal).items():
        before = cluster.partitions[each].replicas
        assert len(set(replicas)) == len(replicas) == len(before)
        assert set(replicas) <= cluster.racks.keys()
        if None not in cluster.racks.values():
            assert sharing(cluster.racks, replicas) <= sharing(cluster.racks, before)


@given(clusters(), st.sampled_from(Goal))
def test_what_is_planned_once_needs_no_second_plan(cluster: ClusterLoad, goal: Goal) -> None:
    assert plan_moves(applied(cluster, plan_moves(cluster, goal)), goal) == {}


@given(clusters(replication_factor=1))
def test_single_replicas_are_balanced_with_the_fewest_moves_that_can_do_it(cluster: ClusterLoad) -> None:
    plan = plan_moves(cluster)
    before, after = counts(cluster), counts(applied(cluster, plan))
    assert max(after) - min(after) <= 1
    low, high = min(after), max(after)
    fewest = max(sum(max(0, each - high) for each in before), sum(max(0, low - each) for each in before))
    assert len(copied(cluster, plan)) == fewest


@given(clusters())
def test_no_single_move_could_improve_a_balanced_plan(cluster: ClusterLoad) -> None:
    cluster = cluster._replace(racks=dict.fromkeys(cluster.racks))
    after = applied(cluster, plan_moves(cluster))
    held = dict(zip(after.racks, counts(after), strict=True))
    for load in after.partitions.values():
        for source in load.replicas:
            assert all(held[source] - held[target] < 2 for target in after.racks if target not in load.replicas)


@given(clusters(), st.sampled_from([Goal.COUNT, Goal.BYTES]), st.data())
def test_drained_broker_gives_up_everything_and_nothing_else_moves(
    cluster: ClusterLoad, goal: Goal, data: st.DataObject
) -> None:
    drained = data.draw(st.sampled_from(sorted(cluster.racks)))
    others = len(cluster.racks) - 1
    if any(drained in load.replicas and len(load.replicas) > others for load in cluster.partitions.values()):
        with pytest.raises(CannotPlan, match="fewer other brokers are up"):
            plan_moves(cluster, goal, drained=[drained])
        return
    plan = plan_moves(cluster, goal, drained=[drained])
    for each, load in cluster.partitions.items():
        replicas = plan.get(each, load.replicas)
        assert len(set(replicas)) == len(load.replicas)
        assert set(load.replicas) - set(replicas) == {drained} & set(load.replicas)


@given(clusters(), st.data())
def test_only_added_brokers_receive_replicas(cluster: ClusterLoad, data: st.DataObject) -> None:
    added = data.draw(st.sampled_from(sorted(cluster.racks)))
    plan = plan_moves(cluster, added=[added])
    assert {broker for _, broker in copied(cluster, plan)} <= {added}
    assert counts(applied(cluster, plan), [added]) >= counts(cluster, [added])


@given(clusters(), st.sampled_from(Goal), st.data())
def test_partitions_that_were_not_selected_stay(cluster: ClusterLoad, goal: Goal, data: st.DataObject) -> None:
    movable = data.draw(st.sets(st.sampled_from(sorted(cluster.partitions)))) if cluster.partitions else set()
    assert plan_moves(cluster, goal, movable=movable).keys() <= movable


@given(st.lists(st.permutations([1, 2, 3]), max_size=12))
def test_leaders_are_even_where_every_broker_has_every_partition(replicas: list[list[int]]) -> None:
    cluster = load_of([tuple(each) for each in replicas], brokers=3)
    plan = plan_moves(cluster)
    assert copied(cluster, plan) == []
    after = leaders(applied(cluster, plan))
    assert max(after) - min(after) <= 1


@given(clusters())
def test_racks_are_used_as_far_as_possible(cluster: ClusterLoad) -> None:
    racks = {each: str(each % 3) for each in cluster.racks}
    after = applied(cluster._replace(racks=racks), plan_moves(cluster._replace(racks=racks), Goal.RACK))
    for load in after.partitions.values():
        assert len({racks[each] for each in load.replicas}) == min(len(load.replicas), len(set(racks.values())))


def test_new_broker_gets_its_share_with_a_few_leaders() -> None:
    cluster = load_of([(1, 2), (2, 3), (3, 1)] * 4, brokers=4)
    plan = plan_moves(cluster, added=[4])
    after = applied(cluster, plan)
    assert counts(after) == [6, 6, 6, 6]
    assert len(copied(cluster, plan)) == 6
    assert leaders(after) == [3, 3, 3, 3]


def test_bytes_are_balanced_with_the_large_partition_first() -> None:
    cluster = load_of([(1,), (1,), (1,), (1,)], brokers=2, sizes=[100, 10, 10, 80])
    plan = plan_moves(cluster, Goal.BYTES)
    assert plan == {TopicPartition("t", 0): (2,)}


def test_dead_broker_can_be_drained_and_is_left_alone_otherwise() -> None:
    cluster = load_of([(9, 1), (9, 2), (1, 2)], brokers=3)
    assert all(9 in plan_moves(cluster).get(each, (9,)) for each in list(cluster.partitions)[:2])
    drained = applied(cluster, plan_moves(cluster, drained=[9]))
    assert [set(load.replicas) for load in drained.partitions.values()] == [{1, 3}, {2, 3}, {1, 2}]


def test_replicas_are_not_moved_into_a_rack_that_has_one() -> None:
    cluster = load_of([(1, 2)] * 4, brokers=3, racks="abb")
    after = applied(cluster, plan_moves(cluster))
    assert all(1 in load.replicas for load in after.partitions.values())
    assert counts(after) == [4, 2, 2]


def test_large_cluster_is_planned_quickly() -> None:
    replicas = [(1 + number % 5, 1 + (number + 1) % 5, 1 + (number + 2) % 5) for number in range(3_000)]
    after = applied(cluster := load_of(replicas, brokers=6), plan_moves(cluster, added=[6]))
    assert counts(after) == [1_500] * 6
