"""Processes of a local cluster: found again, never confused, signalled, waited for."""

import argparse
import asyncio
import errno
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.commands import down, kill_broker
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.detached_processes import reap, start_detached, wait_until_gone
from tidelog.cli.local_cluster.foreground import StopSignals, stop_brokers
from tidelog.cli.local_cluster.plan import Plan
from tidelog.cli.local_command import run_command
from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running, is_stopped, send

SLEEP = ["-c", "import time; time.sleep(60)"]
DEAF = "import signal, sys, time; signal.signal(15, signal.SIG_IGN); print('deaf', file=sys.stderr); time.sleep(60)"
LIMIT_S = 30.0


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, *SLEEP]) as process:
        yield process
        process.kill()


def test_process_is_known_until_it_ends_even_if_nobody_waits_for_it(sleeper: "subprocess.Popen[bytes]") -> None:
    identity = identity_of(sleeper.pid)
    assert identity is not None
    assert is_running(identity)
    assert send(identity, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(identity), "a zombie does not run"
    assert not send(identity, signal.SIGTERM)


def test_process_with_a_reused_id_is_left_alone(sleeper: "subprocess.Popen[bytes]") -> None:
    found = identity_of(sleeper.pid)
    assert found is not None
    earlier = ProcessIdentity(found.pid, found.started + "0")
    assert not is_running(earlier)
    assert not send(earlier, signal.SIGKILL)
    assert is_running(found)


def test_paused_process_is_distinguished_from_a_running_one(sleeper: "subprocess.Popen[bytes]") -> None:
    identity = identity_of(sleeper.pid)
    assert identity is not None
    assert not is_stopped(identity)
    send(identity, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert is_stopped(identity)
    assert is_running(identity)


@pytest.mark.parametrize("command", [down, kill_broker])
def test_cluster_of_another_user_is_left_alone_in_one_sentence(
    command: Callable[[argparse.Namespace], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    identity = identity_of(sleeper.pid)
    assert identity is not None
    data = DataDirectory(str(tmp_path))
    data.keep(Plan(1, 29092, None), {})
    data.register(BrokerProcess(1, identity, "127.0.0.1", 29092, []))

    def deny(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("tidelog.runtime.process_identity.pidfd_send_signal", deny)
    owner = pwd.getpwuid(os.getuid()).pw_name
    with pytest.raises(CommandError) as rejected:
        command(argparse.Namespace(data=str(tmp_path), broker=1, json=False))
    assert str(rejected.value) == (
        f"process {sleeper.pid} belongs to user {owner}; run the command as {owner}, or with sudo"
    )


def test_file_of_another_user_is_named_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock, owner = str(tmp_path / "lock"), pwd.getpwuid(os.getuid()).pw_name

    def lock_file(options: argparse.Namespace) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", lock)

    assert run_command("down", lock_file, argparse.Namespace()) == 1
    assert capsys.readouterr().err == (
        f"tidelog down: no permission to use {lock}; it belongs to user {owner}: run the command as {owner}, or with"
        " sudo\n"
    )


@pytest.mark.parametrize("can_make_sessions", [True, False])
def test_detached_process_has_its_own_session_and_writes_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_make_sessions: bool
) -> None:
    """Interpreters that were built for an older glibc cannot make sessions (python-build-standalone)."""
    spawn = os.posix_spawn

    def older_spawn(*arguments: Any, setsid: bool, **more: Any) -> int:
        if setsid:
            raise NotImplementedError("posix_spawn: setsid unavailable on this platform")
        return spawn(*arguments, **more)

    if not can_make_sessions:
        monkeypatch.setattr(os, "posix_spawn", older_spawn)
    script = "import os, sys; print(os.getsid(0) == os.getpid(), file=sys.stderr); print('unheard')"
    identity = start_detached(["-c", script], tmp_path / "log")
    assert wait_until_gone(identity, LIMIT_S)
    assert (tmp_path / "log").read_text() == "True\n"


def test_detached_process_holds_nothing_open_that_its_starter_was_given(tmp_path: Path) -> None:
    """`flock FILE tidelog up --detach` would otherwise leave the lock with the brokers."""
    script = "import os, sys; print(os.path.exists(f'/proc/self/fd/{sys.argv[1]}'), file=sys.stderr)"
    with open(tmp_path / "lock", "w") as lock:
        os.set_inheritable(lock.fileno(), True)
        identity = start_detached(["-c", script, str(lock.fileno())], tmp_path / "log")
        assert wait_until_gone(identity, LIMIT_S)
    assert (tmp_path / "log").read_text() == "False\n"


def test_large_log_is_put_aside_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.cli.rotating_log.MAX_BYTES", 10)
    (tmp_path / "broker-1.log").write_text("an older log")
    identity = start_detached(["-c", "pass"], tmp_path / "broker-1.log")
    assert wait_until_gone(identity, LIMIT_S)
    assert (tmp_path / "broker-1.log.1").read_text() == "an older log"
    assert (tmp_path / "broker-1.log").read_text() == ""


def test_exit_codes_of_ended_children_are_reported_once(tmp_path: Path) -> None:
    identity = start_detached(["-c", "raise SystemExit(3)"], tmp_path / "log")
    os.waitid(os.P_PID, identity.pid, os.WEXITED | os.WNOWAIT)
    assert reap()[identity.pid] == 3
    assert identity.pid not in reap()


def test_broker_that_does_not_stop_is_killed_when_somebody_insists(tmp_path: Path) -> None:
    identity = start_detached(["-u", "-c", DEAF], tmp_path / "log")
    said: list[str] = []

    async def stop_and_insist() -> None:
        while "deaf" not in (tmp_path / "log").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        end = StopSignals()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
        await stop_brokers({7: BrokerProcess(7, identity, "127.0.0.1", 9092, [])}, None, said.append, end)

    asyncio.run(stop_and_insist())
    assert not is_running(identity)
    assert said == ["killing the brokers that are still running", "broker 7 stopped"]
