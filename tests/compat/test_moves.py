"""Requests about moves that are compared with Kafka's answers: each reason for a difference belongs to a question."""

from compat.answers.check import KNOWN
from compat.answers.moving import KNOWN_MOVES, move_to, reassign
from compat.parts import all_parts


def test_replicas_are_named_by_topic_and_partition() -> None:
    request = reassign(("one", 0, (3, 2)), ("one", 1, None), ("two", 0, ()))
    found = {each.name: [(one.partition_index, one.replicas) for one in each.partitions] for each in request.topics}
    assert found == {"one": [(0, [3, 2]), (1, None)], "two": [(0, [])]}


def test_a_partition_may_be_named_for_two_directories() -> None:
    request = move_to(("/a", "one", 0), ("/b", "one", 0))
    assert [(each.path, each.topics[0].name, list(each.topics[0].partitions)) for each in request.dirs] == [
        ("/a", "one", [0]),
        ("/b", "one", [0]),
    ]


def test_moves_are_a_part_of_the_run_with_reasons_for_what_differs() -> None:
    assert "answers about moves" in all_parts()
    assert KNOWN_MOVES.items() <= dict(KNOWN).items()
