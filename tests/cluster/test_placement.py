from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster import placement
from tidelog.cluster.placement import PlacementStart, place_replicas, rack_alternated, random_start, start_after
from tidelog.errors import InvalidPartitions, InvalidReplicationFactor


def kafka_placements() -> list[list[str]]:
    lines = (Path(__file__).parent / "kafka_placements.txt").read_text().splitlines()
    return [line.split(";") for line in lines if not line.startswith("#")]


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "start", "first", "replicas"),
    kafka_placements(),
    ids=lambda text: str(text)[:40],
)
def test_replicas_are_placed_as_kafka_places_them(
    brokers: str, partitions: str, factor: str, start: str, first: str, replicas: str
) -> None:
    pairs = [broker.split(":") for broker in brokers.split(",")]
    racks = {int(broker): rack or None for broker, rack in pairs}
    placed = place_replicas(racks, int(partitions), int(factor), PlacementStart(int(start), int(start), int(first)))
    assert "|".join(",".join(map(str, each)) for each in placed) == replicas


def test_brokers_alternate_between_racks() -> None:
    racks = {broker: f"rack{broker // 3}" for broker in range(9)}
    assert rack_alternated(racks) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert rack_alternated({1: "a", 2: "a", 3: "a", 4: "b"}) == [1, 4, 2, 3]


@given(
    racks=st.dictionaries(st.integers(0, 50), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=12),
    partitions=st.integers(1, 40),
    data=st.data(),
)
def test_replicas_are_distinct_and_spread_over_racks(
    racks: dict[int, str], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    start = PlacementStart(data.draw(st.integers(0, len(racks) - 1)), data.draw(st.integers(0, len(racks) - 1)))
    placed = place_replicas(racks, partitions, factor, start)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[broker] for broker in racks) <= 1


@pytest.mark.parametrize("brokers_per_machine", [1, 2, 8, 16])
@pytest.mark.parametrize("machines", [3, 4, 7])
def test_no_machine_gets_two_replicas_of_a_partition(machines: int, brokers_per_machine: int) -> None:
    """`tidelog broker --processes`: the brokers of a machine have it as their rack."""
    count = machines * brokers_per_machine
    racks = {broker: f"machine-{broker // brokers_per_machine}" for broker in range(count)}
    for first in range(count):
        start = PlacementStart(first, count - first)
        created = place_replicas(racks, 2 * count + 1, 3, start)
        added = place_replicas(racks, count, 3, start_after(len(created), created[0][0], sorted(racks)))
        for replicas in created + added:
            assert len({racks[broker] for broker in replicas}) == 3
        leaders = Counter(replicas[0] for replicas in created)
        assert set(leaders.values()) <= {2, 3}, "each process leads its share"
        hosted = Counter(racks[broker] for replicas in created for broker in replicas)
        assert max(hosted.values()) - min(hosted.values()) <= 3, "each machine hosts its share"


def test_a_broker_without_a_rack_turns_rack_awareness_off() -> None:
    start = PlacementStart(0, 0)
    assert place_replicas({1: "a", 2: None}, 3, 2, start) == place_replicas({1: None, 2: None}, 3, 2, start)


def test_added_partitions_go_on_where_the_topic_ended() -> None:
    racks = dict.fromkeys(range(3))
    whole = place_replicas(racks, 7, 2, PlacementStart(1, 1))
    first_leader = whole[0][0]
    added = place_replicas(racks, 4, 2, start_after(3, first_leader, sorted(racks)))
    assert [replicas[0] for replicas in added] == [replicas[0] for replicas in whole[3:]]


def test_the_start_is_random_within_the_brokers() -> None:
    assert random_start(5, lambda limit: limit - 1) == PlacementStart(4, 4)


def test_what_cannot_be_placed_is_refused() -> None:
    with pytest.raises(InvalidPartitions):
        place_replicas({1: None}, 0, 1, PlacementStart(0, 0))
    with pytest.raises(InvalidReplicationFactor, match="larger than 0"):
        place_replicas({1: None}, 1, 0, PlacementStart(0, 0))
    with pytest.raises(InvalidReplicationFactor, match=r"only 1 broker\(s\) are registered"):
        place_replicas({1: None}, 1, 2, PlacementStart(0, 0))


def test_members_that_are_away_get_replicas_only_where_live_brokers_do_not_suffice() -> None:
    live = {1: None, 2: None}
    assert place_replicas(live, 2, 3, PlacementStart(0, 0), absent=[3]) == [(1, 2, 3), (2, 1, 3)]
    assert place_replicas(live, 2, 2, PlacementStart(0, 0), absent=[3]) == [(1, 2), (2, 1)]


def test_members_that_are_away_take_turns_and_never_lead() -> None:
    placed = place_replicas({1: None}, 3, 2, PlacementStart(0, 0), absent=[2, 3])
    assert placed == [(1, 2), (1, 3), (1, 2)]


def test_more_replicas_than_members_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor, match="only 3 broker"):
        place_replicas({1: None, 2: None}, 1, 4, PlacementStart(0, 0), absent=[3])
    with pytest.raises(InvalidReplicationFactor, match="All brokers are currently fenced"):
        place_replicas({}, 1, 1, PlacementStart(0, 0), absent=[3])


def test_thousands_of_partitions_are_placed_by_a_few_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = []
    may_take = placement._may_take

    def counted(*arguments: Any) -> bool:
        decided.append(arguments)
        return may_take(*arguments)

    monkeypatch.setattr(placement, "_may_take", counted)
    racks = {1: "a", 2: "b", 3: "c"}
    assert len(place_replicas(racks, 10_000, 3, PlacementStart(0, 0))) == 10_000
    assert len(decided) < 50
