"""Supervisor of a local cluster: reports brokers that started or ended, and restarts them with --restart."""

import asyncio
import time
from collections.abc import Callable

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.detached_processes import reap
from tidelog.cli.local_cluster.hints import hint
from tidelog.cli.local_cluster.plan import Plan
from tidelog.cli.local_cluster.starting import exit_reason, reject_taken_ports, start_broker

CHECK_INTERVAL_S = 0.2
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
STEADY_S = 60.0
"""A broker that ran this long was healthy: the next restart is immediate again."""


class Supervisor:
    def __init__(self, data: DataDirectory, plan: Plan, say: Callable[[str], None], *, restart: bool) -> None:
        self._data = data
        self._plan = plan
        self._say = say
        self._restart = restart
        self._exit_codes: dict[int, int] = {}
        self._seen: dict[int, BrokerProcess] = data.running_brokers(plan)
        self._restarts: dict[int, RestartPause] = {}

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            self.check()

    def check(self) -> None:
        """Reports brokers that started or ended since the last check; restarts them if configured."""
        self._exit_codes |= reap()
        running = self._data.running_brokers(self._plan)
        for broker_id in self._plan.broker_ids:
            before = self._seen.get(broker_id)
            now = running.get(broker_id)
            if before is not None and (now is None or now.identity != before.identity):
                self._on_ended(before)
            if now is not None and (before is None or now.identity != before.identity):
                self._say(f"broker {broker_id} is running: pid {now.identity.pid}")
        self._seen = running
        if self._restart:
            self._restart_missing()

    def _on_ended(self, process: BrokerProcess) -> None:
        code = self._exit_codes.pop(process.identity.pid, None)
        self._say(
            f"broker {process.broker_id} (pid {process.identity.pid}) {_ending(code)}{self._remedy(process, code)}"
        )

    def _remedy(self, process: BrokerProcess, code: int | None) -> str:
        reason = f": {exit_reason(self._data, process.broker_id)}" if code is not None and code > 0 else ""
        return reason if self._restart else f"{reason}; `{hint(self._data, f'start {process.broker_id}')}` restarts it"

    def _restart_missing(self) -> None:
        now = time.monotonic()
        for broker_id in self._plan.broker_ids:
            if broker_id in self._seen:
                continue
            pause = self._restarts.setdefault(broker_id, RestartPause())
            if pause.is_due(now):
                self._try_start(broker_id, pause, now)

    def _try_start(self, broker_id: int, pause: "RestartPause", now: float) -> None:
        pause.on_started(now)
        try:
            with self._data.operation():
                if broker_id in self._data.running_brokers(self._plan):
                    return
                reject_taken_ports(self._plan, [broker_id])
                self._seen[broker_id] = start_broker(self._data, self._plan, broker_id)
        except CommandError as error:
            self._say(f"broker {broker_id} cannot be restarted yet: {error}")
            return
        self._say(f"broker {broker_id} was restarted: pid {self._seen[broker_id].identity.pid}")


class RestartPause:
    """Restart backoff: the first restart is immediate, later ones wait longer while the broker keeps ending early."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._started_at = 0.0
        self._due_at: float | None = None

    def is_due(self, now: float) -> bool:
        if self._due_at is None:
            if now - self._started_at > STEADY_S:
                self._pause_s = 0.0
            self._due_at = now + self._pause_s
        return now >= self._due_at

    def on_started(self, now: float) -> None:
        self._started_at = now
        self._due_at = None
        self._pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, self._pause_s * 2))


def _ending(code: int | None) -> str:
    if code is None:
        return "ended"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
