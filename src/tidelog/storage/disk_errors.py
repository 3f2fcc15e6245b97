"""Classification of OSErrors: transient shortages and disk failures (R5)."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.errors import KafkaStorageError
from tidelog.runtime.disk import DirectoryInUse, File

SHORT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING = SHORT_OF_DESCRIPTORS | {errno.ENOMEM, errno.EINTR, errno.EAGAIN}
"""Errors of the process or the machine, not of the disk. A full disk (ENOSPC, EDQUOT) is not among them: a part of the
write may be on the disk, and the disk stays full until an operator acts."""


class ResourceShortage(KafkaStorageError):
    """Out of descriptors or memory. Nothing has changed, the disk works, and a retry may succeed."""


def is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed without any repair."""
    if isinstance(error, OSError):
        return error.errno in _PASSING and not isinstance(error, DirectoryInUse)
    return isinstance(error, ResourceShortage)


def partial_change_error(error: OSError) -> OSError:
    """An error in the middle of a change is never transient: files and memory may disagree."""
    return OSError(errno.EIO, f"a change of files was interrupted: {error}", error.filename)


def append_whole(file: File, data: bytes | bytearray | memoryview, size_bytes: int) -> None:
    """Append all of the bytes or none: a transient error must leave no part of them in the file."""
    try:
        file.append(data)
    except OSError as error:
        if not is_transient(error):
            raise
        try:
            file.truncate(size_bytes)
        except OSError:
            raise partial_change_error(error) from error
        raise


class DiskGuard:
    """Context manager that converts an OSError with `failed`."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[OSError], KafkaStorageError]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise self._failed(error) from error


@contextmanager
def irreversible_change() -> Iterator[None]:
    """Block that changes files and cannot be undone: an error in the middle is never transient."""
    try:
        yield
    except OSError as error:
        raise partial_change_error(error) from error
