"""`tidelog status`: the report on a cluster, once or until Ctrl-C. The exit code shows its health."""

import argparse
import asyncio
import json
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidelog.cli.client_command import reason_of_silence
from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.broker_queries import BrokerQueries
from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.foreground import new_queries
from tidelog.cli.local_cluster.hints import hint
from tidelog.cli.local_cluster.inspection import inspect_local_cluster, inspect_remote_cluster
from tidelog.cli.local_cluster.report import PARTITIONS_SHOWN, Remedy, as_text, health_of
from tidelog.cli.local_cluster.view import ClusterView, as_json, changes
from tidelog.client.network.bootstrap import BadBootstrap, parse_bootstrap
from tidelog.runtime.cluster_choice import NoCluster, choose_cluster
from tidelog.terminal.colours import paint_for
from tidelog.terminal.live_display import LiveDisplay, supports_live_display, write_line

REFRESH_S = 1.0
ATTEMPTS = 3
"""At the moment of a failover a broker may not answer, or not know its cluster yet."""
ATTEMPT_PAUSE_S = 0.5

Inspect = Callable[[BrokerQueries], Awaitable[ClusterView]]


class Target(NamedTuple):
    """The cluster whose status is shown."""

    inspect: Inspect
    remedy: Remedy | None
    address: str | None
    """Of a cluster elsewhere; None for the cluster of a data directory."""
    command_config: str | None = None
    hint: str = ""
    """What to do if no broker answers there."""


def status(options: argparse.Namespace) -> int:
    target = _target(options)
    if options.watch:
        return asyncio.run(_watch(target, options))
    view = asyncio.run(_inspect_once(target))
    health = health_of(view)
    if target.address is not None and view.cluster_id is None and not options.json:
        reason = asyncio.run(reason_of_silence(target.command_config, parse_bootstrap(target.address)))
        print(f"tidelog status: no broker answers at {target.address} ({reason}); {target.hint}", file=sys.stderr)
    elif options.json:
        print(json.dumps({"health": health.name.lower(), **as_json(view)}, indent=2))
    else:
        print("\n".join(map(paint_for(sys.stdout), _lines(view, target, options))))
    return health


def _target(options: argparse.Namespace) -> Target:
    if options.data is not None:
        return _local(options.data, options.command_config)
    try:
        chosen = choose_cluster(options.bootstrap, options.profile, command_config=options.command_config)
        if chosen.data_directory is not None:
            return _local(chosen.data_directory, options.command_config)
        bootstrap = parse_bootstrap(chosen.bootstrap)
    except NoCluster as reason:
        raise CommandError(str(reason)) from None
    except BadBootstrap as error:
        raise CommandError(f"{chosen.origin}: {error}") from None
    command_config = options.command_config or chosen.command_config
    return Target(
        lambda queries: inspect_remote_cluster(queries, bootstrap),
        None,
        chosen.bootstrap,
        command_config,
        chosen.hint,
    )


def _local(path: str, command_config: str | None) -> Target:
    data = DataDirectory(path)
    plan = data.require_plan()
    return Target(
        lambda queries: inspect_local_cluster(queries, data, plan),
        lambda broker_id: f"Start it: `{hint(data, f'start {broker_id}')}`",
        None,
        command_config or data.command_config,
    )


async def _inspect_once(target: Target) -> ClusterView:
    queries = new_queries(target.command_config)
    try:
        for attempt in range(ATTEMPTS):
            view = await target.inspect(queries)
            if view.cluster_id is not None or all(broker.pid is None for broker in view.brokers):
                break
            if attempt < ATTEMPTS - 1:
                await asyncio.sleep(ATTEMPT_PAUSE_S)
        return view
    finally:
        queries.close()


def _lines(view: ClusterView, target: Target, options: argparse.Namespace) -> list[str]:
    return as_text(view, target.remedy, None if options.all_partitions else PARTITIONS_SHOWN)


def held(last: ClusterView | None, view: ClusterView) -> ClusterView:
    """The view, or the last one that had answers, with brokers as they are now: the screen never goes blank."""
    if view.cluster_id is not None or last is None or last.cluster_id is None:
        return view
    return last._replace(brokers=view.brokers or last.brokers)


async def _watch(target: Target, options: argparse.Namespace) -> int:
    """In a terminal the report is redrawn; elsewhere one line is printed for each change."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    queries = new_queries(target.command_config)
    display = LiveDisplay(sys.stdout, paint_for(sys.stdout)) if supports_live_display(sys.stdout) else None
    last: ClusterView | None = None
    try:
        while not ended.is_set():
            found = await target.inspect(queries)
            view = held(last, found)
            if display is not None:
                display.show(_screen(view, found, target, options))
            elif last is None:
                write_line(sys.stdout, "\n".join(_lines(view, target, options)))
            else:
                for line in changes(last, view):
                    write_line(sys.stdout, line)
            last = view
            await asyncio.wait([asyncio.ensure_future(ended.wait())], timeout=REFRESH_S)
    finally:
        queries.close()
    return 0 if last is None else health_of(last)


def _screen(view: ClusterView, found: ClusterView, target: Target, options: argparse.Namespace) -> list[str]:
    note = ["no broker answers at the moment; this is the last known state"] if found.cluster_id is None else []
    rows = shutil.get_terminal_size().lines - 3
    lines = _lines(view, target, options)
    cut = [*lines[: rows - 1], f"... {len(lines) - rows + 1} more lines"] if len(lines) > rows else lines
    return [*note, *cut, "Ctrl-C ends"]
