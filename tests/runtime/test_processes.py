"""The process seam on real processes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.runtime.processes import SystemProcesses


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_the_end_of_a_process_is_heard(child: subprocess.Popen[bytes]) -> None:
    async def scenario() -> None:
        ended = asyncio.Event()
        assert SystemProcesses().watch(child.pid, ended.set) is not None
        child.kill()
        await asyncio.wait_for(ended.wait(), 20)

    asyncio.run(scenario())


def test_a_watch_that_was_closed_hears_nothing(child: subprocess.Popen[bytes]) -> None:
    async def scenario() -> None:
        ended: list[str] = []
        watch = SystemProcesses().watch(child.pid, lambda: ended.append("ended"))
        assert watch is not None
        watch.close()
        watch.close()
        child.kill()
        child.wait()
        await asyncio.sleep(0)
        assert ended == []

    asyncio.run(scenario())


def test_a_process_that_is_gone_cannot_be_watched() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    async def scenario() -> None:
        assert SystemProcesses().watch(child.pid, lambda: None) is None

    asyncio.run(scenario())


def test_the_own_id() -> None:
    assert SystemProcesses().own_id() == os.getpid()


LOCKS_AND_STOPS = """
import fcntl, os, signal, sys
with open(sys.argv[1], "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 120)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_process_with_a_lock_is_found_and_continued(tmp_path: Path) -> None:
    path, processes = tmp_path / "file", SystemProcesses()
    with subprocess.Popen([sys.executable, "-c", LOCKS_AND_STOPS, str(path)]) as child:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        assert processes.lock_holder(str(path), 120) == child.pid
        assert processes.lock_holder(str(path), 121) is None
        assert processes.resume(child.pid)
        assert child.wait() == 0
    assert processes.lock_holder(str(path), 120) is None
    assert processes.lock_holder(str(tmp_path / "no file"), 120) is None


def test_a_process_that_runs_or_is_gone_is_not_continued(child: subprocess.Popen[bytes]) -> None:
    assert not SystemProcesses().resume(child.pid)
    child.kill()
    child.wait()
    assert not SystemProcesses().resume(child.pid)
