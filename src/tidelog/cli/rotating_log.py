"""Log file that rotates by size. Standard error itself is redirected to it, so that it contains tracebacks, too."""

import logging
import os
import sys
from contextlib import suppress

MAX_BYTES = 10 * 1024 * 1024
KEPT_FILES = 3
"""Old files, `broker-1.log.1` (newest) to `broker-1.log.3`."""

STANDARD_ERROR = 2


def rotate_files(file: str, kept_files: int = KEPT_FILES) -> None:
    """Rename the file and its old files; the oldest is overwritten. Raises OSError if a rename fails."""
    for number in range(kept_files - 1, 0, -1):
        with suppress(FileNotFoundError):
            os.replace(f"{file}.{number}", f"{file}.{number + 1}")
    with suppress(FileNotFoundError):
        os.replace(file, f"{file}.1")


class RotatingLog(logging.StreamHandler):  # type: ignore[type-arg]
    """Log handler that redirects standard error to the file, and on rotation to the new file.

    The process rotates its own log: no helper process is needed, and after kill -9 every line is in a file.
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
            if self._is_current_file():
                rotate_files(self._file, self._kept_files)
            self._redirect()
        except OSError:
            # The disk may be full, or descriptors used up: keep the same file and try again later.
            self._limit_bytes = size_bytes + self._max_bytes
        else:
            self._limit_bytes = self._max_bytes

    def _is_current_file(self) -> bool:
        """False if another process has moved the file."""
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
