"""Comparison of the replicas of one partition: digests of blocks first, then batches where digests differ."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.audit.batch_table import BLOCK_OFFSETS, BoolArray, merge_blocks
from tidelog.audit.finding import Finding, Kind, finding_of, offsets_text
from tidelog.audit.replica_checks import lost_ranges
from tidelog.audit.replica_facts import BatchIdentity, OffsetRange, PlacedBatch, Replica
from tidelog.types import Uuid, ids_text, uuid_text

MAX_DIFFERENCES = 10
"""Maximum number of runs of different blocks that are examined per partition."""


class Difference(NamedTuple):
    """A run of blocks that differ; the first and the last one show where the difference begins and ends."""

    first: OffsetRange
    last: OffsetRange


def cuts_of(replicas: Sequence[Replica]) -> tuple[int, ...]:
    """Required block boundaries, so that each block is wholly inside or outside the compared range of every replica."""
    cuts = {replica.log_start for replica in replicas} | {replica.cleaned_end for replica in replicas}
    cuts |= {replica.high_watermark for replica in replicas if replica.high_watermark is not None}
    return tuple(sorted(cuts))


def by_topic_id(replicas: Sequence[Replica]) -> tuple[list[Replica], list[Finding]]:
    """Replicas with the most common topic id. The others belong to a deleted topic of the same name."""
    holders: dict[Uuid, list[Replica]] = defaultdict(list)
    for replica in replicas:
        if replica.topic_id is not None:
            holders[replica.topic_id].append(replica)
    if len(holders) < 2:
        return list(replicas), []
    newest = max(holders, key=lambda topic_id: len(holders[topic_id]))
    found = [
        finding_of(
            replica,
            Kind.TOPIC_ID,
            f"it belongs to the topic with id {uuid_text(replica.topic_id)}, those on {_names(holders[newest])}"
            f" to the one with id {uuid_text(newest)}",
            file=f"{replica.path}/partition.metadata",
        )
        for topic_id, others in holders.items()
        if topic_id != newest
        for replica in others
        if replica.topic_id is not None
    ]
    return [replica for replica in replicas if replica.topic_id in (newest, None)], found


def differences(replicas: Sequence[Replica], cleaned_end: int) -> list[Difference]:
    """Excludes compacted offsets: brokers compact independently of each other."""
    merged = [merge_blocks([segment.blocks for segment in replica.segments]) for replica in replicas]
    starts = np.unique(np.concatenate([blocks.starts for blocks in merged]))
    starts = starts[starts >= cleaned_end]
    if len(replicas) < 2 or not len(starts):
        return []
    ends = _block_ends(starts, cuts_of(replicas))
    digests = np.zeros((len(replicas), len(starts)), np.uint64)
    takes_part = np.zeros((len(replicas), len(starts)), np.bool_)
    for row, (replica, blocks) in enumerate(zip(replicas, merged, strict=True)):
        at = np.searchsorted(starts, blocks.starts[blocks.starts >= cleaned_end])
        digests[row, at] = blocks.digests[blocks.starts >= cleaned_end]
        takes_part[row] = _takes_part(replica, starts, ends)
    lowest = np.where(takes_part, digests, np.uint64(2**64 - 1)).min(axis=0)
    highest = np.where(takes_part, digests, np.uint64(0)).max(axis=0)
    is_different = (takes_part.sum(axis=0) > 1) & (lowest != highest)
    return _runs(starts, ends, is_different)[:MAX_DIFFERENCES]


def _block_ends(starts: "np.typing.NDArray[np.int64]", cuts: Sequence[int]) -> "np.typing.NDArray[np.int64]":
    ends = (starts // BLOCK_OFFSETS + 1) * BLOCK_OFFSETS
    edges = np.array([*cuts, np.iinfo(np.int64).max], np.int64)
    return np.minimum(ends, edges[np.searchsorted(edges, starts, side="right")])


def _takes_part(
    replica: Replica, starts: "np.typing.NDArray[np.int64]", ends: "np.typing.NDArray[np.int64]"
) -> BoolArray:
    is_in: BoolArray = (starts >= replica.log_start) & (starts < replica.judged_end)
    for lost in lost_ranges(replica):
        is_in &= ~((starts >= lost.start) & (ends <= lost.end))
    return is_in


def _runs(
    starts: "np.typing.NDArray[np.int64]", ends: "np.typing.NDArray[np.int64]", is_different: BoolArray
) -> list[Difference]:
    found: list[Difference] = []
    previous = -2
    for row in np.flatnonzero(is_different).tolist():
        block = OffsetRange(int(starts[row]), int(ends[row]))
        if row == previous + 1:
            found[-1] = found[-1]._replace(last=block)
        else:
            found.append(Difference(block, block))
        previous = row
    return found


class Side(NamedTuple):
    """A replica and its batches in a range that differs, by base offset."""

    replica: Replica
    batches: Mapping[int, PlacedBatch]

    def at(self, base_offset: int) -> BatchIdentity | None:
        found = self.batches.get(base_offset)
        return found.identity if found else None


def check_difference(sides: Sequence[Side]) -> list[Finding]:
    """The replicas that differ, with offsets. Empty if findings of single replicas explain the difference."""
    judged = list(_judged_offsets(sides))
    if not judged:
        return []
    first, voters = judged[0]
    groups: dict[BatchIdentity | None, list[Side]] = defaultdict(list)
    for side in voters:
        groups[side.at(first)].append(side)
    ordered = sorted(groups.values(), key=len, reverse=True)
    has_majority = len(ordered[0]) > len(voters) / 2
    end = max(_end_at(base, voting) for base, voting in judged)
    reference = ordered[0][0].at(first)
    odd = [side for group in ordered[1:] for side in group]
    agreeing = ordered[0] if has_majority else []
    accused = odd if has_majority else voters
    return [_diverged(side, first, end, agreeing, voters, reference) for side in accused]


def _judged_offsets(sides: Sequence[Side]) -> Iterator[tuple[int, list[Side]]]:
    """Base offsets at which replicas differ, with the replicas that should have them."""
    lost = {id(side): lost_ranges(side.replica) for side in sides}
    for base in sorted({base for side in sides for base in side.batches}):
        voters = [
            side
            for side in sides
            if side.replica.log_start <= base < side.replica.judged_end
            and not any(each.holds(base) for each in lost[id(side)])
        ]
        if len({side.at(base) for side in voters}) > 1:
            yield base, voters


def _end_at(base: int, voters: Sequence[Side]) -> int:
    return max(identity.last_offset + 1 for side in voters if (identity := side.at(base)) is not None)


def _diverged(
    side: Side,
    first: int,
    end: int,
    agreeing: Sequence[Side],
    voters: Sequence[Side],
    reference: BatchIdentity | None,
) -> Finding:
    offsets = OffsetRange(first, end)
    placed = side.batches.get(first) or next(
        (side.batches[base] for base in sorted(side.batches) if base >= first), None
    )
    if agreeing:
        others = f"from {_names([each.replica for each in agreeing])}"
        others += ", which agree" if len(agreeing) > 1 else ""
    else:
        others = f"from {_names([each.replica for each in voters if each is not side])}, and no majority agrees"
    why = _what_differs(side.at(first), reference) if agreeing else "other records"
    return finding_of(
        side.replica,
        Kind.DIVERGED,
        f"{offsets_text(offsets)} {'differs' if end - first <= 1 else 'differ'} {others}: {why}",
        file=placed.file if placed else None,
        position=placed.position if placed else None,
        size_bytes=placed.identity.size_bytes if placed else None,
        offsets=offsets,
    )


def _what_differs(own: BatchIdentity | None, reference: BatchIdentity | None) -> str:
    if own is None:
        return "it has no batch that begins there"
    if reference is None:
        return "the others have no batch that begins there"
    if own.crc == reference.crc and own.leader_epoch != reference.leader_epoch:
        return f"leader epoch {own.leader_epoch} instead of {reference.leader_epoch}"
    return "other records"


def _names(replicas: Sequence[Replica]) -> str:
    brokers = [replica.log_dir.broker for replica in replicas]
    known = [broker for broker in brokers if broker is not None]
    if len(known) == len(replicas):
        return f"broker{'s' if len(known) > 1 else ''} {ids_text(known)}"
    return ", ".join(replica.log_dir.path for replica in replicas)
