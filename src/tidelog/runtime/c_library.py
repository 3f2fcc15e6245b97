"""System calls through the C library, for builds of Python that lack them."""

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import Any, Final

PIDFD_SEND_SIGNAL: Final = 424
PIDFD_OPEN: Final = 434
"""Numbers of calls, the same on all architectures."""

library: Any = ctypes.CDLL(None, use_errno=True)


class _IoVector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def preadv(fd: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
    """`os.preadv` with flags, into one buffer. Raises BlockingIOError, as if nothing were cached, without `preadv2`."""
    (buffer,) = buffers
    if not buffer:
        return 0
    if not hasattr(library, "preadv2"):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    start = ctypes.c_char.from_buffer(buffer)
    vector = _IoVector(ctypes.addressof(start), len(buffer))
    library.preadv2.restype = ctypes.c_ssize_t
    return _checked(library.preadv2(fd, ctypes.byref(vector), 1, ctypes.c_int64(position), flags))


def pidfd_open(process_id: int) -> int:
    return _checked(library.syscall(ctypes.c_long(PIDFD_OPEN), process_id, 0))


def pidfd_send_signal(descriptor: int, number: int) -> None:
    _checked(library.syscall(ctypes.c_long(PIDFD_SEND_SIGNAL), descriptor, int(number), None, 0))


def memfd_create(name: str, flags: int) -> int:
    return _checked(library.memfd_create(name.encode(), ctypes.c_uint(flags)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
