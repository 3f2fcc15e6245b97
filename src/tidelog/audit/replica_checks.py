"""Checks of a single replica: damaged batches, gaps between segments, epochs that contradict the checkpoint."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from tidelog.audit.finding import Finding, Kind, finding_of, offsets_are, offsets_text
from tidelog.audit.replica_facts import Defect, DefectKind, OffsetRange, Replica, SegmentFacts
from tidelog.storage.leader_epochs import EpochEntry, LeaderEpochs

_KINDS = {
    DefectKind.CORRUPT: Kind.CORRUPT_BATCH,
    DefectKind.CUT: Kind.CUT_BATCH,
    DefectKind.GAP: Kind.MISSING_RECORDS,
    DefectKind.OVERLAP: Kind.OVERLAP,
    DefectKind.EPOCH: Kind.EPOCHS,
    DefectKind.MALFORMED: Kind.MALFORMED_RECORDS,
    DefectKind.OLD_FORMAT: Kind.NOTE,
}

_LOSING = (DefectKind.CORRUPT, DefectKind.CUT, DefectKind.GAP, DefectKind.OLD_FORMAT)
"""Defects because of which records are missing from the digests."""


def check_replica(replica: Replica, *, is_compacted: bool) -> list[Finding]:
    """Gaps in offsets are allowed in compacted topics only."""
    found = [
        *_unreadable(replica),
        *_defect_findings(replica, is_compacted=is_compacted),
        *_joints(replica, is_compacted=is_compacted),
        *_beginning(replica),
        *_end(replica),
        *_epochs(replica, is_compacted=is_compacted),
    ]
    return found + _orphans(replica, found)


def lost_ranges(replica: Replica) -> list[OffsetRange]:
    """Offsets that are missing for a reason that is reported as a finding already."""
    ranges = [
        _offsets(replica, index, defect)
        for index, segment in enumerate(replica.segments)
        for defect in segment.defects
        if defect.kind in _LOSING
    ]
    ranges += [OffsetRange(one.end_offset, _first(two)) for one, two in pairwise(replica.segments)]
    ranges += [
        OffsetRange(segment.end_offset, _end_of_range(replica, index))
        for index, segment in enumerate(replica.segments)
        if segment.error is not None or segment.is_gone
    ]
    if replica.log_end < replica.judged_end:
        ranges.append(OffsetRange(replica.log_end, replica.judged_end))
    return sorted(each for each in ranges if each.start < each.end)


def _first(segment: SegmentFacts) -> int:
    return segment.base_offset if segment.first_offset is None else segment.first_offset


def _end_of_range(replica: Replica, index: int) -> int:
    """End of the offsets that belong to the segment."""
    if index + 1 < len(replica.segments):
        return replica.segments[index + 1].base_offset
    return max(replica.judged_end, replica.log_end)


def _reaches_end(segment: SegmentFacts, defect: Defect) -> bool:
    return defect.position + defect.size_bytes >= segment.size_bytes


def _offsets(replica: Replica, index: int, defect: Defect) -> OffsetRange:
    segment = replica.segments[index]
    end = defect.end_offset
    if _reaches_end(segment, defect) and defect.kind is not DefectKind.GAP:
        end = max(end, _end_of_range(replica, index))
    return OffsetRange(defect.start_offset, end)


def _unreadable(replica: Replica) -> Iterator[Finding]:
    for segment in replica.segments:
        file = replica.file_path(segment.base_offset)
        if segment.error is not None:
            yield finding_of(replica, Kind.UNREADABLE, f"the file cannot be read: {segment.error}", file=file)
        if segment.is_gone:
            yield finding_of(replica, Kind.UNREADABLE, "the file went away while the audit ran", file=file)


def _defect_findings(replica: Replica, *, is_compacted: bool) -> Iterator[Finding]:
    for index, segment in enumerate(replica.segments):
        for defect in segment.defects:
            if defect.kind is DefectKind.GAP and is_compacted:
                continue
            offsets = _offsets(replica, index, defect)
            kind = _KINDS[defect.kind]
            if _is_unfinished(replica, index, defect):
                if replica.log_dir.is_running:
                    continue
                kind = Kind.NOTE
            yield finding_of(
                replica,
                kind,
                _defect_sentence(defect, offsets, kind),
                file=replica.file_path(segment.base_offset),
                position=defect.position,
                size_bytes=defect.size_bytes,
                offsets=offsets,
            )


def _is_unfinished(replica: Replica, index: int, defect: Defect) -> bool:
    """True for a write in progress or cut off by a crash: its records were never committed."""
    return (
        index == len(replica.segments) - 1
        and defect.start_offset >= replica.judged_end
        and (replica.log_dir.is_running or not replica.log_dir.is_clean)
    )


def _defect_sentence(defect: Defect, offsets: OffsetRange, kind: Kind) -> str:
    where = offsets_text(offsets)
    match defect.kind:
        case DefectKind.GAP:
            return (
                f"{offsets_are(offsets)} missing between two batches (a compacted topic may be named with --compacted)"
            )
        case DefectKind.OLD_FORMAT:
            return f"from byte {defect.position} on the segment has {defect.detail}, which the audit does not check"
        case _ if kind is Kind.NOTE:
            return f"a write above the high watermark was cut off by a crash: {defect.detail}"
        case _:
            return f"{defect.detail} ({where})"


def _joints(replica: Replica, *, is_compacted: bool) -> Iterator[Finding]:
    """Each segment must begin at the end of the previous one, with the offset in its name."""
    for one, two in pairwise(replica.segments):
        yield from _joint(replica, one, two, is_compacted=is_compacted)
    for segment in replica.segments:
        first, name = segment.first_offset, segment.base_offset
        is_explained = bool(segment.defects) or (is_compacted and not _is_beyond(replica, segment))
        if first is None or first == name or (first > name and is_explained):
            continue
        yield finding_of(
            replica,
            Kind.FILE_NAME,
            f"the first batch has offset {first}, the file is named after offset {name}",
            file=replica.file_path(name),
            position=0,
            offsets=OffsetRange(min(first, name), max(first, name)),
        )


def _is_beyond(replica: Replica, segment: SegmentFacts) -> bool:
    """True if the segment should have committed offsets but starts above all of them, which compaction never causes."""
    is_stopped = replica.log_dir.is_clean and not replica.log_dir.is_running
    return is_stopped and segment.base_offset < replica.judged_end <= _first(segment)


def _joint(replica: Replica, one: SegmentFacts, two: SegmentFacts, *, is_compacted: bool) -> Iterator[Finding]:
    file = replica.file_path(two.base_offset)
    if one.end_offset > two.base_offset:
        offsets = OffsetRange(two.base_offset, one.end_offset)
        sentence = f"{offsets_are(offsets)} in the segment before it, too"
        yield finding_of(replica, Kind.OVERLAP, sentence, file=file, position=0, offsets=offsets)
    is_complete = one.error is None and not any(_reaches_end(one, defect) for defect in one.defects)
    if one.end_offset < two.base_offset and is_complete and not one.is_gone and not is_compacted:
        yield _missing_segment(replica, OffsetRange(one.end_offset, two.base_offset))
    if two.epoch_runs and two.epoch_runs[0].epoch < one.last_epoch:
        yield _epoch_joint(replica, one, two)


def _epoch_joint(replica: Replica, one: SegmentFacts, two: SegmentFacts) -> Finding:
    """Finding for leader epochs that decrease between segments, at the run of batches that does not fit."""
    following = two.epoch_runs[0]
    stands_out = len(one.epoch_runs) > 1 and one.epoch_runs[-2].epoch <= following.epoch
    segment, run, end = (one, one.epoch_runs[-1], one.end_offset) if stands_out else (two, following, two.end_offset)
    return finding_of(
        replica,
        Kind.EPOCHS,
        f"leader epoch {following.epoch} at offset {following.start_offset} comes after leader epoch {one.last_epoch}",
        file=replica.file_path(segment.base_offset),
        position=run.position,
        offsets=OffsetRange(run.start_offset, end),
    )


def _missing_segment(replica: Replica, offsets: OffsetRange) -> Finding:
    """Finding for missing segments, named after remaining index files, or after the first missing offset."""
    named = [each for each in replica.orphaned_offsets if offsets.holds(each)] or [offsets.start]
    names = ", ".join(f"{each:020d}.log" for each in named)
    sentence = f"{names} is missing: {offsets_text(offsets)}"
    file = replica.file_path(named[0])
    return finding_of(replica, Kind.MISSING_SEGMENT, sentence, file=file, offsets=offsets)


def _beginning(replica: Replica) -> Iterator[Finding]:
    """Retention moves the first epoch's start along: if that lies before the first segment, retention did not delete.

    A broker that runs or crashed may not have written the epochs yet.
    """
    if not replica.files or not replica.epochs or replica.log_dir.is_running or not replica.log_dir.is_clean:
        return
    due = max(replica.epochs[0].start_offset, replica.checkpointed_start)
    first = replica.files[0].base_offset
    if due < first:
        yield _missing_segment(replica, OffsetRange(due, first))


def _end(replica: Replica) -> Iterator[Finding]:
    high_watermark = replica.high_watermark
    if high_watermark is None or replica.log_end >= high_watermark:
        return
    last = replica.segments[-1] if replica.segments else None
    if last is not None and (last.error or last.is_gone or any(_reaches_end(last, each) for each in last.defects)):
        return
    offsets = OffsetRange(replica.log_end, high_watermark)
    if last is None or any(offsets.holds(each) for each in replica.orphaned_offsets):
        yield _missing_segment(replica, offsets)
        return
    sentence = f"the log ends before its high watermark {high_watermark}: {offsets_are(offsets)} missing"
    yield finding_of(
        replica,
        Kind.MISSING_RECORDS,
        sentence,
        file=replica.file_path(last.base_offset),
        position=last.size_bytes,
        offsets=offsets,
    )


def _orphans(replica: Replica, found: list[Finding]) -> list[Finding]:
    """Index files without a segment that nothing else has explained."""
    reported = [each.offsets for each in found if each.kind is Kind.MISSING_SEGMENT and each.offsets is not None]
    if not replica.log_dir.is_clean and not replica.log_dir.is_running:
        return []
    bases = [file.base_offset for file in replica.files]
    return [
        _missing_segment(replica, OffsetRange(base, _following(bases, base)))
        for base in replica.orphaned_offsets
        if not any(offsets.holds(base) for offsets in reported)
    ]


def _following(bases: list[int], base: int) -> int:
    at = bisect_left(bases, base)
    return bases[at] if at < len(bases) else base + 1


def _epochs(replica: Replica, *, is_compacted: bool) -> Iterator[Finding]:
    """The checkpoint must name every epoch of the committed records that were flushed, with its first offset."""
    seen = [EpochEntry(*run[:2]) for segment in replica.segments for run in segment.epoch_runs if run.epoch >= 0]
    starts = [one for index, one in enumerate(seen) if index == 0 or seen[index - 1].epoch != one.epoch]
    if not starts:
        return
    known_from = replica.epochs[0].start_offset if replica.epochs else replica.log_start
    checkpoint = LeaderEpochs(list(replica.epochs))
    file = f"{replica.path}/leader-epoch-checkpoint"
    for start in starts:
        if max(known_from, replica.log_start) <= start.start_offset < replica.epochs_end:
            listed = checkpoint.epoch_at(start.start_offset)
            if listed != start.epoch:
                says = f"epoch {listed}" if listed >= 0 else "no epoch"
                sentence = f"records from offset {start.start_offset} on have leader epoch {start.epoch}"
                sentence += f", the checkpoint has {says} there"
                offsets = OffsetRange(start.start_offset, start.start_offset + 1)
                yield finding_of(replica, Kind.EPOCHS, sentence, file=file, offsets=offsets)
                return
    if not is_compacted:
        yield from _unwritten_epochs(replica, starts, file)


def _unwritten_epochs(replica: Replica, starts: list[EpochEntry], file: str) -> Iterator[Finding]:
    lost = lost_ranges(replica)
    for epoch, offset in replica.epochs:
        is_inside = replica.log_start < offset < min(replica.log_end, replica.epochs_end)
        if is_inside and EpochEntry(epoch, offset) not in starts and not any(each.holds(offset) for each in lost):
            sentence = (
                f"according to the checkpoint, leader epoch {epoch} starts at offset {offset}, but the records differ"
            )
            offsets = OffsetRange(offset, offset + 1)
            yield finding_of(replica, Kind.EPOCHS, sentence, file=file, offsets=offsets)
            return
