"""A plan as text: the moves, and what each broker has before and after them."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.cli.partition_moves.survey import Survey
from tidelog.cluster.move_planner import Plan, Replicas
from tidelog.terminal.plurals import plural
from tidelog.terminal.quantities import size_text
from tidelog.terminal.tables import table
from tidelog.types import BrokerId, TopicPartition, ids_text

MOVES_SHOWN = 50


class Move(NamedTuple):
    topic_partition: TopicPartition
    before: Replicas
    after: Replicas
    size_bytes: int

    @property
    def added(self) -> Replicas:
        return tuple(each for each in self.after if each not in self.before)

    @property
    def removed(self) -> Replicas:
        return tuple(each for each in self.before if each not in self.after)

    @property
    def copied_bytes(self) -> int:
        return len(self.added) * self.size_bytes

    @property
    def text(self) -> str:
        if not self.added and not self.removed:
            return f"order of replicas, preferred leader {self.before[0]} -> {self.after[0]}"
        parts = [f"copy to {ids_text(self.added)}"] if self.added else []
        parts += [f"remove from {ids_text(self.removed)}"] if self.removed else []
        return ", ".join(parts)


def moves_of(plan: Plan, survey: Survey) -> list[Move]:
    return [
        Move(each, survey.partitions[each].replicas, replicas, survey.size_of(each))
        for each, replicas in sorted(plan.items())
    ]


def plan_lines(moves: list[Move], survey: Survey) -> list[str]:
    return [*_move_lines(moves), "", *_broker_lines(moves, survey), "", summary(moves)]


def summary(moves: list[Move]) -> str:
    copies = sum(len(move.added) for move in moves)
    if not copies:
        return f"{plural(len(moves), 'partition')} change; no data is copied"
    copied = size_text(sum(move.copied_bytes for move in moves))
    return f"{plural(len(moves), 'partition')} change: {plural(copies, 'replica')} to copy, {copied}"


def _move_lines(moves: list[Move]) -> list[str]:
    rows = [
        (move.topic_partition, ids_text(move.before), ids_text(move.after), size_text(move.copied_bytes), move.text)
        for move in moves[:MOVES_SHOWN]
    ]
    hidden = len(moves) - MOVES_SHOWN
    more = [f"... and {plural(hidden, 'partition')} more; --dry-run --json shows all"] if hidden > 0 else []
    return [*table(["PARTITION", "REPLICAS", "NEW REPLICAS", "TO COPY", ""], rows), *more]


class _Share(NamedTuple):
    replicas: Counter[BrokerId]
    leaders: Counter[BrokerId]
    bytes: Counter[BrokerId]


def _shares(replicas: Mapping[TopicPartition, Replicas], survey: Survey) -> _Share:
    share = _Share(Counter(), Counter(), Counter())
    for each, brokers in replicas.items():
        share.leaders[brokers[0]] += 1
        for broker in brokers:
            share.replicas[broker] += 1
            share.bytes[broker] += survey.size_of(each)
    return share


def _broker_lines(moves: list[Move], survey: Survey) -> list[str]:
    replicas = {each: found.replicas for each, found in survey.partitions.items()}
    before = _shares(replicas, survey)
    after = _shares(replicas | {move.topic_partition: move.after for move in moves}, survey)
    rows = [
        (
            broker,
            _rack_or_state(broker, survey),
            _change(before.replicas[broker], after.replicas[broker]),
            _change(before.leaders[broker], after.leaders[broker]),
            _change(size_text(before.bytes[broker]), size_text(after.bytes[broker])),
        )
        for broker in sorted(survey.brokers.keys() | before.replicas.keys() | after.replicas.keys())
    ]
    return table(["BROKER", "RACK", "REPLICAS", "PREFERRED LEADER OF", "BYTES"], rows)


def _rack_or_state(broker: BrokerId, survey: Survey) -> str:
    found = survey.brokers.get(broker)
    return "(down)" if found is None else found.rack or "-"


def _change(before: object, after: object) -> str:
    return str(before) if before == after else f"{before} -> {after}"
