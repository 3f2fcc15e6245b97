"""Classification of OSErrors: shortages that pass, and failures of a disk (R5)."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.errors import KafkaStorageError
from tidelog.runtime.disk import DirectoryInUse, File

SHORT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING = SHORT_OF_DESCRIPTORS | {errno.ENOMEM, errno.EINTR, errno.EAGAIN}
"""They say something about the process or the machine of this moment, and nothing about the disk. A full disk (ENOSPC,
EDQUOT) is none of them: a part of what was to be written may be there, and it lasts until somebody comes."""


class StorageShortage(KafkaStorageError):
    """Short of descriptors or memory: nothing has changed, the disk is well, and the same may succeed later."""


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed a moment later, without anybody repairing anything."""
    if isinstance(error, OSError):
        return error.errno in _PASSING and not isinstance(error, DirectoryInUse)
    return isinstance(error, StorageShortage)


def half_done(error: OSError) -> OSError:
    """An error in the middle of a change is no shortage, whatever it is: files and memory may not agree any more."""
    return OSError(errno.EIO, f"a change of files was interrupted: {error}", error.filename)


def append_whole(file: File, data: bytes | bytearray | memoryview, size_bytes: int) -> None:
    """Append to a file of this size, all of it or nothing: a passing error must leave no part of it behind."""
    try:
        file.append(data)
    except OSError as error:
        if not is_passing(error):
            raise
        try:
            file.truncate(size_bytes)
        except OSError:
            raise half_done(error) from error
        raise


class DiskGuard:
    """Turns any OSError of a block into the error that its owner makes of it."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[OSError], KafkaStorageError]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise self._failed(error) from error


@contextmanager
def irrevocably() -> Iterator[None]:
    """A change of files that cannot be taken back: an error in its middle is never one that passes."""
    try:
        yield
    except OSError as error:
        raise half_done(error) from error
