"""System calls that not every build of Python has.

Interpreters that uv and others install (python-build-standalone) are built for an old glibc and lack all of these.
"""

import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

RWF_NOWAIT: Final = 8
MFD_CLOEXEC: Final = 1

preadv: Callable[[int, Sequence[bytearray], int, int], int]
memfd_create: Callable[[str, int], int]
pidfd_open: Callable[[int], int]
pidfd_send_signal: Callable[[int, int], None]

if hasattr(os, "RWF_NOWAIT") and hasattr(os, "memfd_create") and hasattr(signal, "pidfd_send_signal"):
    preadv = os.preadv
    memfd_create = os.memfd_create
    pidfd_open = os.pidfd_open
    pidfd_send_signal = signal.pidfd_send_signal
else:
    from tidelog.runtime import c_library  # takes long to import, and is rarely needed

    preadv = c_library.preadv
    memfd_create = c_library.memfd_create
    pidfd_open = c_library.pidfd_open
    pidfd_send_signal = c_library.pidfd_send_signal
