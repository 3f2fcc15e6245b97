"""`tidelog log dump` and `tidelog log verify`."""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.cli.command_error import CommandError
from tidelog.cli.log_checks import PartitionCheck, check_partition
from tidelog.cli.log_dump import entries_of, is_damage, is_dumped, line_of
from tidelog.cli.log_reading import is_segment
from tidelog.errors import CorruptMessage
from tidelog.storage.checkpoints import CorruptCheckpoint
from tidelog.storage.partition_metadata import PARTITION_METADATA
from tidelog.storage.partition_names import parse_partition_name
from tidelog.storage.producer_state import CorruptSnapshot
from tidelog.storage.segment import LOG_SUFFIX
from tidelog.terminal.plurals import plural
from tidelog.terminal.quantities import size_text

SOUND, DAMAGED = 0, 1
LEVELS_BELOW = 2
"""Partitions lie in a log directory, log directories in the data directory of `tidelog up`."""


def dump(options: argparse.Namespace) -> int:
    """Exit code 1 if a file is damaged."""
    exit_code = SOUND
    for file in _files(options.paths):
        if not options.json:
            print(f"==> {file} <==")
        try:
            for entry in entries_of(file, with_records=not options.batches):
                exit_code = DAMAGED if is_damage(entry) else exit_code
                print(json.dumps({"file": str(file), **entry}) if options.json else line_of(entry))
        except (CorruptSnapshot, CorruptCheckpoint, CorruptMessage) as error:
            exit_code = DAMAGED
            print(json.dumps({"file": str(file), "error": str(error)}) if options.json else f"damaged: {error}")
    return exit_code


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for text in paths:
        path = Path(text)
        if path.is_dir():
            found = sorted(each for each in path.iterdir() if each.is_file() and is_dumped(each))
            if not found:
                raise CommandError(f"{text} has no log files; give the directory of a partition, such as orders-0")
            yield from found
        elif not path.exists():
            raise CommandError(f"{text} does not exist")
        elif not is_dumped(path):
            raise CommandError(
                f"{text} is not a log file: expected .log, .index, .timeindex, .txnindex, .snapshot, ..."
            )
        else:
            yield path


def verify(options: argparse.Namespace) -> int:
    checks = [check_partition(directory) for text in options.paths for directory in partition_directories(text)]
    damaged = [check for check in checks if check.damages]
    if options.json:
        print(json.dumps([_as_json(check) for check in checks]))
    else:
        for damage in (damage for check in damaged for damage in check.damages):
            place = "" if damage.position is None else f", byte {damage.position}"
            print(f"{damage.file}{place}: {damage.sentence}")
        print(_summary(checks, damaged))
    return DAMAGED if damaged else SOUND


def partition_directories(text: str) -> list[Path]:
    """The directory itself, those in it, or those in the directories in it."""
    root = Path(text)
    if not root.is_dir():
        raise CommandError(f"{text} is not a directory" if root.exists() else f"{text} does not exist")
    if _has_segments(root):  # of any name: a log that was set aside, a copy
        return [root]
    level = [root]
    for _ in range(LEVELS_BELOW):
        level = [each for directory in level for each in sorted(directory.iterdir()) if each.is_dir()]
        partitions = [each for each in level if _is_partition(each)]
        if partitions:
            return partitions
    raise CommandError(f"{text} has no partitions; give a log directory, or the data directory of `tidelog up`")


def _is_partition(path: Path) -> bool:
    """Also one whose segments are missing."""
    return parse_partition_name(path.name) is not None and (_has_segments(path) or (path / PARTITION_METADATA).exists())


def _has_segments(path: Path) -> bool:
    """Raises PermissionError if the directory cannot be listed: what was not read must not be called sound."""
    return any(is_segment(each) for each in path.iterdir() if each.suffix == LOG_SUFFIX)


def _as_json(check: PartitionCheck) -> dict[str, object]:
    damages = [damage._asdict() for damage in check.damages]
    return check._asdict() | {"damages": damages, "is_sound": not damages}


def _summary(checks: Sequence[PartitionCheck], damaged: Sequence[PartitionCheck]) -> str:
    records, size = sum(check.records for check in checks), sum(check.size_bytes for check in checks)
    what = f"{plural(len(checks), 'partition')}, {plural(records, 'record')}, {size_text(size)}"
    if not damaged:
        return f"sound: {what}"
    count = sum(len(check.damages) for check in damaged)
    return (
        f"damaged: {plural(count, 'fault')} in {plural(len(damaged), 'partition')}; checked {what}. If another replica"
        " is sound and in sync, stop this broker and move the partition's directory away: it is fetched again"
    )
