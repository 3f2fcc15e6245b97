"""State directory of a pipeline: run lock, status of the last run, log and checkpoint."""

import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running, send
from tidelog.runtime.user_directories import data_home

STATE_VARIABLE = "TIDELOG_PIPELINES"
PIPELINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LOCK_WAIT_S = 1.0
"""Another process may hold the lock for a moment to test it."""
POLL_S = 0.005


def default_state_directory() -> str:
    """One place per user: a pipeline started from another directory must find its checkpoint."""
    return os.environ.get(STATE_VARIABLE) or os.path.join(data_home(), "tidelog-pipelines")


class StateRejected(Exception):
    """Nothing was changed; the message says why and what to do."""


class RunState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


ACTIVE = frozenset({RunState.STARTING, RunState.RUNNING, RunState.STOPPING})

UI = "ui"
"""Key of the progress: the address of Spark's own page."""


@dataclass(frozen=True, slots=True)
class Status:
    """Status of the last run, as reported by itself."""

    pid: int
    file: str
    started_at: str
    updated_at: str
    state: RunState
    error: str | None = None
    progress: Mapping[str, object] = field(default_factory=dict)

    @property
    def spark_ui(self) -> str | None:
        """Address of Spark's own page, which ends with the run. None if it has none."""
        address = self.progress.get(UI)
        if self.state not in ACTIVE or not isinstance(address, str) or not address.startswith(("http://", "https://")):
            return None
        return address


class PipelineState:
    """State of one pipeline. The lock says whether it runs, status.json has what its last run reported."""

    def __init__(self, root: Path | str, name: str) -> None:
        self.name = name
        self.directory = Path(root).expanduser().absolute() / name
        self.checkpoint = self.directory / "checkpoint"
        self.log_file = self.directory / "log.txt"
        self._lock_file = self.directory / "lock"
        self._status_file = self.directory / "status.json"

    @contextmanager
    def running(self, file: Path) -> Generator[None]:
        """Holds the run lock until the block is left or the process ends."""
        self._create()
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(descriptor)
            self._check_same_file(file)
            own = identity_of(os.getpid())
            assert own is not None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(own._asdict()).encode(), 0)
            now = _now()
            self._write(Status(os.getpid(), str(file), now, now, RunState.STARTING))
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def replaying(self, file: Path) -> Generator[None]:
        """Lock for one replay at a time; the pipeline may run meanwhile."""
        if self.status() is None:
            raise StateRejected(
                f"pipeline {self.name} has not run in {self.directory.parent}; there is nothing to replay"
            )
        self._check_same_file(file)
        descriptor = os.open(self.directory / "replay.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _try_lock(descriptor):
                raise StateRejected(f"pipeline {self.name} is already being replayed; wait for that replay to end")
            yield
        finally:
            os.close(descriptor)

    def report(
        self,
        state: RunState | None = None,
        *,
        error: str | None = None,
        progress: Mapping[str, object] | None = None,
    ) -> None:
        """Updates the status; arguments that are not given keep their value."""
        status = self.status()
        assert status is not None, "a run reports only while it holds the lock"
        self._write(
            replace(
                status,
                state=state or status.state,
                error=error if error is not None else status.error,
                progress=progress if progress is not None else status.progress,
                updated_at=_now(),
            )
        )

    def _create(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateRejected(
                f"cannot create {self.directory}: {error.strerror}; choose another directory with --state"
            ) from error

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + LOCK_WAIT_S
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                holder = self.holder()
                by = f" (pid {holder.pid})" if holder else ""
                raise StateRejected(
                    f"pipeline {self.name} is already running{by}; stop it with `tidelog pipeline stop {self.name}`"
                )
            time.sleep(POLL_S)

    def _check_same_file(self, file: Path) -> None:
        """Two pipeline files with the same name would continue from each other's checkpoint."""
        status = self.status()
        if status is not None and Path(status.file) != file and Path(status.file).exists():
            raise StateRejected(
                f"pipeline name {self.name} belongs to {status.file} in {self.directory.parent};"
                " choose another name in [pipeline], or another directory with --state"
            )

    def _write(self, status: Status) -> None:
        """Atomic: a reader sees the old or the new content."""
        temporary = self._status_file.with_name(".status.json.tmp")
        temporary.write_text(json.dumps(asdict(status), indent=2, default=str) + "\n", encoding="utf-8")
        temporary.replace(self._status_file)

    def status(self) -> Status | None:
        """None if the pipeline has never run."""
        try:
            found = json.loads(self._status_file.read_text(encoding="utf-8"))
            return Status(**(found | {"state": RunState(found["state"])}))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise StateRejected(f"{self._status_file} is not valid: {error}") from error

    def holder(self) -> ProcessIdentity | None:
        """The process that runs the pipeline: it holds the lock, and its identity is in the lock file."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            if _try_lock(descriptor, fcntl.LOCK_SH):
                return None
            found = json.loads(os.pread(descriptor, 1000, 0))
            identity = ProcessIdentity(int(found["pid"]), str(found["started"]))
        except (ValueError, KeyError, TypeError):
            return None
        finally:
            os.close(descriptor)
        return identity if is_running(identity) else None

    def present(self) -> Status | None:
        """The status, corrected if the process ended without reporting."""
        holder = self.holder()
        status = self.status()
        if status is None or status.state not in ACTIVE or holder is not None:
            return status
        lost = f"process {status.pid} ended unexpectedly while {status.state}; see {self.log_file}"
        return replace(status, state=RunState.FAILED, error=lost)

    def stop(self, timeout_s: float) -> bool:
        """Asks the running process to stop; True if it did in time. Raises StateRejected if it is not running."""
        holder = self.holder()
        if holder is None or not send(holder, signal.SIGTERM):
            raise StateRejected(f"pipeline {self.name} is not running")
        deadline = time.monotonic() + timeout_s
        while self.holder() == holder:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True


def list_pipelines(root: Path | str) -> list[PipelineState]:
    """All pipelines of this state directory, by name."""
    directory = Path(root).expanduser().absolute()
    try:
        names = sorted(entry.name for entry in directory.iterdir() if (entry / "status.json").exists())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [PipelineState(directory, name) for name in names]


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
