"""Marker of a log that has replaced one in another log dir (R30): which of two logs counts after a crash.

No rename is atomic over two disks. The future log gets the marker, then the name of the partition; only then is the
old log renamed, and at last the marker removed. A broker that stops in between finds the partition in two log dirs:
the marked one counts. Apache Kafka ignores the file.

A log that is created while a log dir is offline is marked, too: an earlier topic with the same name may be there.
"""

import json
from collections.abc import Iterable

from tidelog.runtime.disk import Disk

MARKER = "replaced-log-dirs"

ANY_DIRECTORY = "*"
"""Stands for a log dir that could not be read when the new log was created, so that its id is unknown."""


def write_replaced(disk: Disk, path: str, directory_ids: Iterable[str]) -> None:
    """Mark the log in `path` as the replacement of those in the log dirs with these ids (directory.id, KIP-858)."""
    content = {"version": 0, "directoryIds": sorted(directory_ids)}
    disk.write_file_atomically(f"{path}/{MARKER}", json.dumps(content, separators=(",", ":")).encode())


def read_replaced(disk: Disk, path: str) -> frozenset[str]:
    """Ids of the log dirs with replaced logs; none without a readable marker."""
    try:
        content = json.loads(disk.read_file(f"{path}/{MARKER}"))
        return frozenset(each for each in content["directoryIds"] if isinstance(each, str))
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return frozenset()


def remove_markers(disk: Disk, paths: Iterable[str]) -> None:
    for path in paths:
        if disk.exists(f"{path}/{MARKER}"):
            remove_marker(disk, path)


def remove_marker(disk: Disk, path: str) -> None:
    disk.remove(f"{path}/{MARKER}")
    disk.sync_directory(path)
