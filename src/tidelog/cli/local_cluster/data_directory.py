"""Data directory of a local cluster: plan, broker settings, process files and locks."""

import fcntl
import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import NamedTuple

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.plan import (
    HOST,
    Plan,
    default_settings,
    parse_plan,
    plan_text,
    properties_text,
    settings_per_core,
)
from tidelog.cli.local_cluster.secure_settings import broker_settings, cluster_settings
from tidelog.runtime.cluster_choice import CLIENT_PROPERTIES
from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running

LOCK_WAIT_S = 30.0
LOCK_POLL_S = 0.02
MIN_IN_SYNC_REPLICAS = "min.insync.replicas"
IGNORED_ENTRIES = frozenset({"lost+found"})


class BrokerProcess(NamedTuple):
    """Process of a broker, as last started; it may have ended since."""

    broker_id: int
    identity: ProcessIdentity
    host: str
    port: int
    arguments: Sequence[str]
    metrics_port: int | None = None
    """None: metrics are off, because the port was in use."""

    @property
    def metrics_url(self) -> str | None:
        return None if self.metrics_port is None else f"http://{self.host}:{self.metrics_port}/metrics"

    @property
    def is_running(self) -> bool:
        return is_running(self.identity)


class SupervisorProcess(NamedTuple):
    identity: ProcessIdentity
    restart: bool
    """True if it restarts brokers that end."""


class DataDirectory:
    def __init__(self, path: str) -> None:
        self.name = path
        """The path as the user wrote it, for messages."""
        self.root = Path(path).expanduser().absolute()
        self.settings_file = self.root / "server.properties"
        self.coordination_store = self.root / "coordination.sqlite"
        self.supervisor_log = self.root / "supervisor.log"
        self._plan_file = self.root / "cluster.json"
        self._operation_lock = self.root / ".operation.lock"
        self._supervisor_lock = self.root / ".supervisor.lock"

    @property
    def command_config(self) -> str | None:
        """client.properties of the administrator, if the cluster is secure."""
        file = self.root / CLIENT_PROPERTIES
        return str(file) if file.exists() else None

    def log_file(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}.log"

    def log_directory(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}"

    def _process_file(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}.json"

    def stored_plan(self) -> Plan | None:
        """None if the directory is new or empty. CommandError if it holds something else."""
        try:
            return parse_plan(self._plan_file.read_text(), str(self._plan_file))
        except FileNotFoundError:
            self._check_is_ours()
            return None
        except NotADirectoryError as error:
            raise CommandError(f"{self.name} is not a directory") from error
        except OSError as error:
            raise CommandError(f"cannot read {self._plan_file}: {error.strerror}") from error

    def _check_is_ours(self) -> None:
        if not self.root.exists():
            return
        if not self.root.is_dir():
            raise CommandError(f"{self.name} is not a directory")
        found = sorted(entry.name for entry in self.root.iterdir() if not self._is_harmless(entry.name))
        if found:
            raise CommandError(
                f"{self.name} is not a data directory of `tidelog up` (it contains {found[0]});"
                " choose an empty or new directory with --data"
            )

    @staticmethod
    def _is_harmless(name: str) -> bool:
        return name.startswith(".") or name in IGNORED_ENTRIES

    def require_plan(self) -> Plan:
        plan = self.stored_plan()
        if plan is None:
            raise CommandError(
                f"no cluster in {self.name}; create one with `tidelog up`, or choose another directory with --data"
            )
        return plan

    def stored_settings(self) -> dict[str, str]:
        from tidelog.config.properties import parse_properties

        return {found.key: found.value for found in parse_properties(self.settings_file.read_text(encoding="utf-8"))}

    def min_in_sync_replicas(self) -> int:
        """Cluster-wide default of min.insync.replicas."""
        value = self.stored_settings().get(MIN_IN_SYNC_REPLICAS, "1")
        return int(value) if value.isdecimal() else 1

    def keep(self, plan: Plan, settings: Mapping[str, str]) -> None:
        """Writes plan and settings. A settings file that the user edited is not rewritten if no setting changes."""
        if not self.settings_file.exists():
            secure = cluster_settings(self.root, plan) if plan.is_secure else {}
            defaults = settings_per_core(gethostname()) if plan.is_per_core else default_settings(plan.brokers)
            _write(self.settings_file, properties_text(defaults | secure | dict(settings)))
        elif settings:
            stored = self.stored_settings()
            wanted = {**stored, **settings}
            if wanted != stored:
                _write(self.settings_file, properties_text(wanted))
        _write(self._plan_file, plan_text(plan))

    def broker_arguments(self, plan: Plan, broker_id: int, metrics_port: int | None) -> list[str]:
        """Arguments of `python -m tidelog` for one broker."""
        own = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{plan.port_of(broker_id)}",
            "log.dirs": str(self.log_directory(broker_id)),
        }
        if plan.is_secure:
            own |= broker_settings(self.root, plan, broker_id)
        if metrics_port is not None:
            own["metrics.listener"] = f"{HOST}:{metrics_port}"
        if plan.zookeeper:
            own["zookeeper.connect"] = plan.zookeeper
        else:
            own["coordination.store"] = str(self.coordination_store)
        flags = [part for name, value in own.items() for part in ("--set", f"{name}={value}")]
        log = ["--log-format", plan.log_format, "--log-file", str(self.log_file(broker_id))]
        return ["-m", "tidelog", "broker", "--config", str(self.settings_file), *log, *flags]

    def register(self, process: BrokerProcess) -> None:
        _write(
            self._process_file(process.broker_id),
            json.dumps(
                {
                    "pid": process.identity.pid,
                    "started": process.identity.started,
                    "host": process.host,
                    "port": process.port,
                    "arguments": list(process.arguments),
                    "metrics_port": process.metrics_port,
                },
                indent=2,
            )
            + "\n",
        )

    def process_of(self, broker_id: int) -> BrokerProcess | None:
        """The broker as last started, running or not; None if it was never started."""
        try:
            found = json.loads(self._process_file(broker_id).read_text())
            identity = ProcessIdentity(int(found["pid"]), str(found["started"]))
            return BrokerProcess(
                broker_id,
                identity,
                str(found["host"]),
                int(found["port"]),
                found["arguments"],
                found.get("metrics_port"),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{self._process_file(broker_id)} is damaged: {error}") from error

    def running_brokers(self, plan: Plan) -> dict[int, BrokerProcess]:
        found = (self.process_of(broker_id) for broker_id in plan.broker_ids)
        return {process.broker_id: process for process in found if process is not None and process.is_running}

    @contextmanager
    def operation(self) -> Generator[None]:
        """Lock for commands that start or stop brokers: one at a time, others wait."""
        descriptor = os.open(self._operation_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + LOCK_WAIT_S
            while not _try_lock(descriptor):
                if time.monotonic() > deadline:
                    raise CommandError(
                        f"another `tidelog` command has locked {self.name} for {LOCK_WAIT_S:.0f} s; wait for it, or"
                        " stop it"
                    )
                time.sleep(LOCK_POLL_S)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def supervision(self, *, restart: bool) -> Generator[None]:
        """Lock of the one process that supervises the brokers; its identity is in the file while it lives."""
        descriptor = os.open(self._supervisor_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _try_lock(descriptor):
                raise CommandError(self._supervised())
            own = identity_of(os.getpid())
            assert own is not None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({**own._asdict(), "restart": restart}).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _supervised(self) -> str:
        supervisor = self.supervisor()
        by = f" (pid {supervisor.identity.pid})" if supervisor else ""
        return (
            f"{self.name} is in use by another `tidelog up`{by}; stop it with Ctrl-C in its terminal, or with"
            " `tidelog down`"
        )

    def reject_second_supervisor(self) -> None:
        if self.supervisor() is not None:
            raise CommandError(self._supervised())

    def supervisor(self) -> SupervisorProcess | None:
        """The running supervisor process."""
        try:
            found = json.loads(self._supervisor_lock.read_text())
            supervisor = SupervisorProcess(
                ProcessIdentity(int(found["pid"]), str(found["started"])), restart=bool(found["restart"])
            )
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None
        return supervisor if is_running(supervisor.identity) else None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write(path: Path, text: str) -> None:
    """Atomic: a reader sees the old or the new content."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
