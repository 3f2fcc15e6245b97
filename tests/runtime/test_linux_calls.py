"""System calls through the C library do what those of Python do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.runtime import c_library, linux_calls
from tidelog.runtime.disk import SystemDisk


def test_numbers_are_those_of_linux() -> None:
    assert (linux_calls.RWF_NOWAIT, linux_calls.MFD_CLOEXEC) == (os.RWF_NOWAIT, os.MFD_CLOEXEC)


def test_cached_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"high tide")
    file = SystemDisk().open(str(tmp_path / "log"), "read")
    expected = [file.read_cached(5, 4), file.read_cached(5, 40), file.read_cached(0, 0), file.is_cached(0, 9)]
    assert expected[0] in (b"tide", None)
    monkeypatch.setattr("tidelog.runtime.disk.preadv", c_library.preadv)
    assert [file.read_cached(5, 4), file.read_cached(5, 40), file.read_cached(0, 0), file.is_cached(0, 9)] == expected
    file.close()


def test_bytes_of_a_closed_file_are_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        c_library.preadv(-1, [bytearray(1)], 0, linux_calls.RWF_NOWAIT)


def test_nothing_is_cached_without_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_bytes(b"high tide")
    file = SystemDisk().open(str(tmp_path / "log"), "read")
    monkeypatch.setattr("tidelog.runtime.disk.preadv", c_library.preadv)
    monkeypatch.setattr("tidelog.runtime.c_library.library", object())
    assert file.is_cached(0, 9) is False
    assert file.read_cached(0, 9) is None
    file.close()


def test_a_process_gets_a_signal_by_its_descriptor() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        descriptor = c_library.pidfd_open(process.pid)
        c_library.pidfd_send_signal(descriptor, signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            c_library.pidfd_send_signal(descriptor, signal.SIGTERM)
        os.close(descriptor)
    with pytest.raises(OSError, match="Invalid argument"):
        c_library.pidfd_open(-1)


def test_a_file_in_memory() -> None:
    descriptor = c_library.memfd_create("key", linux_calls.MFD_CLOEXEC)
    os.write(descriptor, b"secret")
    assert Path(f"/proc/self/fd/{descriptor}").read_bytes() == b"secret"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
