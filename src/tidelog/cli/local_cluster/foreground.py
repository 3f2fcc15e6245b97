"""Foreground part of `tidelog up`: waiting until the cluster is ready, then showing it until Ctrl-C."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tidelog.cli.client_command import command_network
from tidelog.cli.local_cluster.administrator import ensure_administrator
from tidelog.cli.local_cluster.broker_queries import BrokerQueries
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.hints import bootstrap_flag, hint, program
from tidelog.cli.local_cluster.inspection import inspect_local_cluster
from tidelog.cli.local_cluster.plan import Plan
from tidelog.cli.local_cluster.readiness import BrokerEnded, wait_until_ready, wait_until_writable
from tidelog.cli.local_cluster.screen import Screen, make_screen
from tidelog.cli.local_cluster.stopping import kill, stop, stop_order
from tidelog.cli.local_cluster.supervisor import Supervisor
from tidelog.cli.local_cluster.up_command import client_lines, metrics_line, ready_line

CHECK_INTERVAL_S = 1.0
MAX_REFRESH_SHARE = 0.05
"""Refreshing takes at most this share of the time, however many partitions there are."""
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def new_queries(command_config: str | None = None) -> BrokerQueries:
    """With the TLS and login of a client.properties, if there is one."""
    return BrokerQueries(command_network(command_config))


class StopSignals:
    """First Ctrl-C: controlled shutdown of the brokers. Second Ctrl-C: kill them."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()
        for number in END_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self.insisted if self.asked.is_set() else self.asked).set()


def wait_for_cluster(
    data: DataDirectory, plan: Plan, started: Mapping[int, BrokerProcess], say: Callable[[str], None]
) -> bool:
    """Waits until the cluster accepts writes; False if interrupted. On failure, stops the brokers it started."""

    async def wait() -> bool:
        end = StopSignals()
        queries = new_queries(data.command_config)
        try:
            return await _stop_on_failure(_wait_until_writable(queries, data, plan, started, say), started, say, end)
        finally:
            queries.close()

    return asyncio.run(wait())


def wait_for_one(data: DataDirectory, process: BrokerProcess, say: Callable[[str], None]) -> bool:
    """Waits until one broker is back in the cluster; other brokers may be down."""
    alone = {process.broker_id: process}

    async def wait() -> bool:
        end = StopSignals()
        queries = new_queries(data.command_config)
        try:
            return await _stop_on_failure(
                wait_until_ready(queries, data, alone, partial(_say_ready, say)), alone, say, end
            )
        finally:
            queries.close()

    return asyncio.run(wait())


async def _wait_until_writable(
    queries: BrokerQueries,
    data: DataDirectory,
    plan: Plan,
    started: Mapping[int, BrokerProcess],
    say: Callable[[str], None],
) -> None:
    processes = {**data.running_brokers(plan), **started}
    if plan.is_secure:
        await ensure_administrator(data.root, plan)
    await wait_until_ready(queries, data, processes, partial(_say_ready, say))
    await wait_until_writable(queries, processes, data.min_in_sync_replicas())


def _say_ready(say: Callable[[str], None], process: BrokerProcess) -> None:
    say(f"broker {process.broker_id} is ready: {process.host}:{process.port} (pid {process.identity.pid})")


async def _stop_on_failure(
    work: Coroutine[Any, Any, None],
    started: Mapping[int, BrokerProcess],
    say: Callable[[str], None],
    end: StopSignals,
) -> bool:
    waiting = asyncio.ensure_future(work)
    asked = asyncio.ensure_future(end.asked.wait())
    try:
        await asyncio.wait([waiting, asked], return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
            return True
        say("interrupted: stopping the brokers that were started")
        await stop_brokers(started, None, say, end)
        return False
    except BrokerEnded:
        await stop_brokers(started, None, lambda _: None, end)
        raise
    finally:
        waiting.cancel()
        asked.cancel()
        # The brokers that were stopped may have made it fail meanwhile.
        await asyncio.gather(waiting, asked, return_exceptions=True)


async def stop_brokers(
    processes: Mapping[int, BrokerProcess], controller: int | None, say: Callable[[str], None], end: StopSignals
) -> None:
    """Controlled shutdown, or SIGKILL after a second Ctrl-C."""
    stopping = asyncio.ensure_future(asyncio.to_thread(stop, stop_order(list(processes.values()), controller), say))
    insisted = asyncio.ensure_future(end.insisted.wait())
    await asyncio.wait([stopping, insisted], return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        say("killing the brokers that are still running")
        kill(processes.values())
    insisted.cancel()
    await stopping


async def watch(
    data: DataDirectory,
    plan: Plan,
    started: Mapping[int, BrokerProcess],
    began: float,
    *,
    restart: bool,
    console: AbstractContextManager[str],
) -> int:
    """`console` begins when the cluster is ready; it yields a line to print."""
    end = StopSignals()
    queries = new_queries(data.command_config)
    screen = make_screen(f"Ctrl-C stops the cluster; its data stays in {data.name}")
    try:
        if not await _stop_on_failure(
            _wait_until_writable(queries, data, plan, started, screen.say), started, screen.say, end
        ):
            return 1
        ready = [
            ready_line(plan, started, began),
            metrics_line(data, plan),
            *client_lines(data),
            f"bootstrap: {plan.bootstrap}",
        ]
        with console as console_line:
            for line in [*ready, *filter(None, [console_line]), *_first_steps(data, plan)]:
                screen.say(line)
            controller = await _until_ended(queries, data, plan, screen, end, restart=restart)
        screen.say("stopping the brokers")
        await stop_brokers(data.running_brokers(plan), controller, screen.say, end)
        return 0
    finally:
        queries.close()


async def _until_ended(
    queries: BrokerQueries, data: DataDirectory, plan: Plan, screen: Screen, end: StopSignals, *, restart: bool
) -> int | None:
    """Shows the cluster until the user stops it; returns the controller at that time."""
    supervisor = asyncio.ensure_future(Supervisor(data, plan, screen.say, restart=restart).run())
    asked = asyncio.ensure_future(end.asked.wait())
    loop = asyncio.get_running_loop()
    controller = None
    try:
        while not asked.done():
            if supervisor.done():
                supervisor.result()
            began = loop.time()
            view = await inspect_local_cluster(queries, data, plan)
            controller = view.controller
            screen.show(view)
            pause_s = max(CHECK_INTERVAL_S, (loop.time() - began) / MAX_REFRESH_SHARE)
            await asyncio.wait([asked, supervisor], timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        return controller
    finally:
        supervisor.cancel()
        asked.cancel()


def _first_steps(data: DataDirectory, plan: Plan) -> list[str]:
    bootstrap = bootstrap_flag(data, plan)
    lines = [
        "",
        "Try it from another terminal:",
        f'  echo "hello, tide" | {program()} produce greetings{bootstrap}',
        f"  {program()} consume greetings --from-beginning{bootstrap}",
    ]
    if plan.brokers > 1:
        lines.append(f"  {hint(data, 'kill 1')}    and later    {hint(data, 'start 1')}")
    return lines
