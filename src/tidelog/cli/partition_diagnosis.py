"""Diagnosis of a partition in sentences: why it has no leader or too few in-sync replicas, and what to do."""

# Core: no clock, no I/O, no await.

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from tidelog.cli.local_cluster.view import PartitionView
from tidelog.client.admin.reassignment_admin import Reassignment
from tidelog.types import BrokerId


class Findings(NamedTuple):
    partition: PartitionView
    live: AbstractSet[BrokerId]
    min_in_sync: int
    eligible: Sequence[BrokerId]
    """Replicas outside the ISR that have every committed record (KIP-966)."""
    move: Reassignment | None
    at_ms: int


def diagnosis(found: Findings) -> list[str]:
    partition = found.partition
    if partition.leader is None:
        return [*_without_leader(found), *_move_lines(found)]
    lines = [] if partition.is_healthy else [_leader_line(partition)]
    lines += [f"{_capitalised(reason.text(found.at_ms))}." for reason in partition.out_of_sync]
    lines += _below_minimum(found)
    lines += _move_lines(found)
    if partition.is_healthy:
        lines.insert(
            0, f"{partition.topic_partition} is healthy: broker {partition.leader} leads, and {_all(partition)}."
        )
    preferred = partition.replicas[0]
    if partition.leader != preferred and preferred in partition.in_sync:
        topic, number = partition.topic_partition
        lines.append(
            f"Its preferred leader is broker {preferred}, which is in sync:"
            f" `tidelog partition elect {topic}:{number}` makes it the leader."
        )
    return lines


def _leader_line(partition: PartitionView) -> str:
    return (
        f"{partition.topic_partition} is under-replicated: broker {partition.leader} leads, and"
        f" {len(partition.in_sync)} of {len(partition.replicas)} replicas are in sync ({_names(partition.in_sync)})."
    )


def _without_leader(found: Findings) -> list[str]:
    partition = found.partition
    candidates = [each for each in partition.replicas if each in {*partition.in_sync, *found.eligible}]
    absent = [each for each in candidates if each not in found.live]
    lines = [f"{partition.topic_partition} has no leader: it can be neither read nor written."]
    if candidates and len(absent) == len(candidates):
        lines.append(
            f"Only {_names(candidates)} had every committed record when the last leader went, and"
            f" {'it is' if len(absent) == 1 else 'all of them are'} down."
        )
        lines.append(f"Start {_one_of(absent)}: the partition is then served again, and nothing is lost.")
    elif candidates:
        up = [each for each in candidates if each in found.live]
        lines.append(f"{_capitalised(_names(up))} could lead and is up: the controller should elect it in a moment.")
        lines.append("If it does not, look into the log of the controller.")
    lines += _unclean_way_out(found, candidates)
    return lines


def _unclean_way_out(found: Findings, candidates: Collection[BrokerId]) -> list[str]:
    topic, number = found.partition.topic_partition
    others = [each for each in found.partition.replicas if each in found.live and each not in candidates]
    if not others:
        return []
    return [
        f"If the disks of {_names(sorted(candidates))} are lost: `tidelog partition elect {topic}:{number} --unclean`"
        f" makes {_one_of(others)} the leader. Acknowledged records that it lacks are lost then."
    ]


def _below_minimum(found: Findings) -> list[str]:
    in_sync = len(found.partition.in_sync)
    if in_sync >= found.min_in_sync:
        return []
    return [
        f"Writes with acks=all are refused: {in_sync} in sync, and min.insync.replicas is {found.min_in_sync}."
        " Reading goes on."
    ]


def _move_lines(found: Findings) -> list[str]:
    if found.move is None:
        return []
    parts = [f"replicas are added on {_names(found.move.adding)}"] if found.move.adding else []
    parts += [f"removed from {_names(found.move.removing)}"] if found.move.removing else []
    return [f"It is being moved: {', and '.join(parts)} (`tidelog partition move --status`)."]


def _all(partition: PartitionView) -> str:
    count = len(partition.replicas)
    return "it is the only replica" if count == 1 else f"its {count} replicas are in sync ({_names(partition.in_sync)})"


def _names(brokers: Collection[BrokerId]) -> str:
    ids = [str(each) for each in brokers]
    if not ids:
        return "no broker"
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(ids[:-1])} and {ids[-1]}"


def _one_of(brokers: Sequence[BrokerId]) -> str:
    return _names(brokers) if len(brokers) == 1 else f"one of {_names(brokers)}"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
