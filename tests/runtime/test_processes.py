"""The process seam on real processes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

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
