"""Log file of a process that rotates by size: standard error is written there, whoever writes to it."""

import logging
import os
import sys
from contextlib import suppress

MAX_BYTES = 10 * 1024 * 1024
KEPT_FILES = 3
"""Older ones, as `broker-1.log.1` (the newest) to `broker-1.log.3`."""

STANDARD_ERROR = 2


def put_aside(file: str, kept_files: int = KEPT_FILES) -> None:
    """Number the file and the older ones anew; the oldest is gone then. OSError if that fails half-way."""
    for number in range(kept_files - 1, 0, -1):
        with suppress(FileNotFoundError):
            os.replace(f"{file}.{number}", f"{file}.{number + 1}")
    with suppress(FileNotFoundError):
        os.replace(file, f"{file}.1")


class RotatingLog(logging.StreamHandler):  # type: ignore[type-arg]
    """The descriptor of standard error is replaced, so that tracebacks and last words go to the new file, too.

    The process rotates its own log: that needs nobody else to be alive, and after a kill -9 every line is in a file.
    """

    def __init__(self, file: str, max_bytes: int = MAX_BYTES, kept_files: int = KEPT_FILES) -> None:
        super().__init__(sys.stderr)
        self._file = file
        self._max_bytes = self._limit_bytes = max_bytes
        self._kept_files = kept_files
        self._redirect()

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        size_bytes = os.fstat(STANDARD_ERROR).st_size
        if size_bytes > self._limit_bytes:
            self._rotate(size_bytes)

    def _rotate(self, size_bytes: int) -> None:
        try:
            if self._is_written_to():
                put_aside(self._file, self._kept_files)
            self._redirect()
        except OSError:
            # The disk is full, say, or descriptors have run out: go on in the same file, and try again later.
            self._limit_bytes = size_bytes + self._max_bytes
        else:
            self._limit_bytes = self._max_bytes

    def _is_written_to(self) -> bool:
        """Not if somebody else has moved the file away."""
        try:
            return os.path.samestat(os.stat(self._file), os.fstat(STANDARD_ERROR))
        except FileNotFoundError:
            return False

    def _redirect(self) -> None:
        self.flush()
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.dup2(descriptor, STANDARD_ERROR)
        finally:
            os.close(descriptor)
