"""Offset reset of a group: the new offset of each partition, bounded by its log."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple

from tidelog.client.consumer.offsets import BEGINNING, END, list_offsets
from tidelog.client.routing.cluster import Cluster
from tidelog.types import TopicPartition

MAX_OFFSET = 2**63 - 1
DEFAULT_TIMEOUT_S = 30.0


class ResetKind(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"  # in milliseconds
    SHIFT = "shift"


class ResetTarget(NamedTuple):
    kind: ResetKind
    value: int = 0


def parse_target(text: str) -> ResetTarget:
    """`earliest`, `latest`, an offset, a time in milliseconds as `@ms`, or a shift as `+n` or `-n`."""
    if text in (ResetKind.EARLIEST, ResetKind.LATEST):
        return ResetTarget(ResetKind(text))
    kind = {"@": ResetKind.TIME, "+": ResetKind.SHIFT, "-": ResetKind.SHIFT}.get(text[:1], ResetKind.OFFSET)
    digits = text if kind is ResetKind.OFFSET else text[1:]
    if not digits.isascii() or not digits.isdecimal() or int(digits) > MAX_OFFSET:
        raise ValueError(f"expected earliest, latest, an offset, a time as @ms, or a shift as +n or -n, found {text!r}")
    return ResetTarget(kind, -int(digits) if text.startswith("-") else int(digits))


async def reset_offsets(
    cluster: Cluster,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    target: ResetTarget,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> dict[TopicPartition, int]:
    """New offsets, none before the log start or after the log end. Nothing is committed."""

    async def offsets_at(timestamp: int) -> dict[TopicPartition, int]:
        found = await list_offsets(cluster, dict.fromkeys(partitions, timestamp), timeout_s=timeout_s)
        return {where: each.offset for where, each in found.items()}

    if not partitions:
        return {}
    starts, ends = await offsets_at(BEGINNING), await offsets_at(END)
    match target.kind:
        case ResetKind.EARLIEST:
            return starts
        case ResetKind.LATEST:
            return ends
        case ResetKind.TIME:
            # -1: every record is older.
            wanted = {where: at if at >= 0 else ends[where] for where, at in (await offsets_at(target.value)).items()}
        case ResetKind.OFFSET:
            wanted = dict.fromkeys(partitions, target.value)
        case ResetKind.SHIFT:
            wanted = {where: committed.get(where, ends[where]) + target.value for where in partitions}
    return {where: min(max(offset, starts[where]), ends[where]) for where, offset in wanted.items()}
