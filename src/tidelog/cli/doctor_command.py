"""Work of `tidelog doctor`: collects facts about the machine and the cluster for the checks."""

import argparse
import asyncio
import json
import re
import resource
import shlex
import shutil
import socket
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tidelog.cli.client_command import command_network, reason_of_silence
from tidelog.cli.command_error import CommandError
from tidelog.cli.disk_view import DisksView, disks_of
from tidelog.cli.doctor_checks import (
    ClusterFacts,
    Finding,
    MachineFacts,
    OpenTransaction,
    Severity,
    cluster_findings,
    finding_lines,
    hanging_partition,
    machine_findings,
)
from tidelog.cli.local_cluster.data_directory import DataDirectory
from tidelog.cli.local_cluster.foreground import new_queries
from tidelog.cli.local_cluster.hints import bootstrap_flag, hint, program
from tidelog.cli.local_cluster.inspection import inspect_local_cluster, inspect_remote_cluster
from tidelog.cli.local_cluster.plan import HOST
from tidelog.cli.local_cluster.view import ClusterView
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.hanging_transactions import OPEN_STATES, HangingTransaction, find_hanging
from tidelog.client.admin.transaction_admin import TransactionAdmin
from tidelog.client.network.bootstrap import Address, BadBootstrap, parse_bootstrap
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.kernels import is_compiled
from tidelog.runtime.cluster_choice import NoCluster, choose_cluster, default_data_directory
from tidelog.runtime.randomness import SystemRandomness
from tidelog.terminal.colours import paint_for

TIMEOUT_S = 5.0
COMMAND = re.compile("`tidelog ([^`]+)`")
LOCAL_COMMANDS = ("start", "up")
"""Take a data directory; the others take the address of brokers."""


def doctor(options: argparse.Namespace) -> int:
    findings = machine_findings(_machine(options))
    if not options.machine:
        findings += asyncio.run(_cluster(options))
    problems = [each for each in findings if each.is_problem]
    if options.json:
        print(json.dumps([each._asdict() for each in findings]))
    else:
        print("\n".join(map(paint_for(sys.stdout), finding_lines(findings, shows_all=options.shows_all))))
    return 1 if problems else 0


# ---- the machine


def _machine(options: argparse.Namespace) -> MachineFacts:
    directory = options.data or default_data_directory()
    existing = Path(directory).expanduser().absolute()
    while not existing.exists():
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    return MachineFacts(
        resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        directory,
        usage.total,
        usage.free,
        _file_system_of(existing),
        _available_memory(),
        _newest_file(Path(directory).expanduser()) - time.time(),
        is_compiled,
        _java_problem(),
        _taken_ports(directory),
    )


def _file_system_of(path: Path) -> str:
    """Type of the file system of the longest mount point above the path; empty if unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [(fields[1], fields[2]) for fields in mounts if path.is_relative_to(fields[1])]
    return max(above, key=lambda each: len(each[0]), default=("", ""))[1]


def _available_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _newest_file(directory: Path) -> float:
    times = [0.0]
    for pattern in ("*", "*/*"):
        for path in directory.glob(pattern):
            try:
                times.append(path.stat().st_mtime)
            except OSError:
                continue
    return max(times)


def _java_problem() -> str | None:
    if find_spec("pyspark") is None:
        return None
    from tidelog.spark.java import problem_of_java

    return problem_of_java()


def _taken_ports(directory: str) -> dict[int, int]:
    data = DataDirectory(directory)
    try:
        plan = data.stored_plan()
        running = {} if plan is None else data.running_brokers(plan)
    except (CommandError, OSError):
        return {}
    if plan is None:
        return {}
    down = [each for each in plan.broker_ids if each not in running]
    return {each: plan.port_of(each) for each in down if _is_taken(plan.port_of(each))}


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


# ---- the cluster


class _Place(NamedTuple):
    """The cluster that is visited, and how clients log in there."""

    bootstrap: list[Address]
    command_config: str | None
    data: DataDirectory | None
    """Of a cluster on this machine."""


def _place(options: argparse.Namespace) -> _Place:
    directory = options.data
    if directory is None:
        chosen = choose_cluster(options.bootstrap, options.profile, command_config=options.command_config)
        directory = chosen.data_directory
        if directory is None:
            try:
                bootstrap = parse_bootstrap(chosen.bootstrap)
            except BadBootstrap as error:
                raise CommandError(f"{chosen.origin}: {error}") from None
            return _Place(bootstrap, options.command_config or chosen.command_config, None)
    data = DataDirectory(directory)
    return _Place(parse_bootstrap(data.require_plan().bootstrap), options.command_config or data.command_config, data)


async def _cluster(options: argparse.Namespace) -> list[Finding]:
    try:
        place = _place(options)
    except NoCluster as reason:
        return [Finding(Severity.NOTE, "cluster", f"not checked: {reason}")]
    view = await _view(place)
    if view.cluster_id is None:
        remedy = "`tidelog up` starts it" if place.data else "check the address, the login, and that the brokers run"
        where = ", ".join(map(str, place.bootstrap))
        why = await reason_of_silence(place.command_config, place.bootstrap)
        silent = Finding(Severity.ERROR, "cluster", f"no broker answers at {where} ({why})", remedy)
        return [_pasteable(silent, options, place)]
    async with Cluster(command_network(place.command_config), place.bootstrap, SystemRandomness()) as cluster:
        facts = ClusterFacts(
            view,
            await _disks(cluster),
            {each.topic_partition.topic: len(each.replicas) for each in view.partitions},
            await _transactions(cluster, view),
            place.data is not None,
        )
    return [_pasteable(each, options, place) for each in cluster_findings(facts)]


def _pasteable(finding: Finding, options: argparse.Namespace, place: _Place) -> Finding:
    """With the options that name the cluster: a command for another cluster would mend nothing."""
    return finding._replace(remedy=COMMAND.sub(lambda found: f"`{_command(found[1], options, place)}`", finding.remedy))


def _command(command: str, options: argparse.Namespace, place: _Place) -> str:
    if place.data is not None and command.split()[0] in LOCAL_COMMANDS:
        return hint(place.data, command)
    flags = ""
    if place.data is not None:
        flags = bootstrap_flag(place.data, place.data.require_plan())
    elif options.profile is not None:
        flags = f" --profile {shlex.quote(options.profile)}"
    elif options.bootstrap is not None:
        flags = f" --bootstrap {shlex.quote(options.bootstrap)}"
    config = options.command_config or (place.command_config if flags and place.data else None)
    return f"{program()} {command}{flags}" + (f" --command-config {shlex.quote(config)}" if config else "")


async def _view(place: _Place) -> ClusterView:
    queries = new_queries(place.command_config)
    try:
        if place.data is None:
            return await inspect_remote_cluster(queries, place.bootstrap)
        return await inspect_local_cluster(queries, place.data, place.data.require_plan())
    finally:
        queries.close()


async def _disks(cluster: Cluster) -> DisksView | None:
    try:
        return disks_of(await Admin(cluster, timeout_s=TIMEOUT_S).describe_log_dirs())
    except (KafkaError, ConnectionLost, GaveUp):
        return None


async def _transactions(cluster: Cluster, view: ClusterView) -> list[OpenTransaction]:
    """Open ones that coordinators know, and producers that hold back a partition and that no coordinator knows."""
    admin = TransactionAdmin(cluster, timeout_s=TIMEOUT_S)
    now_ms = time.time_ns() // 1_000_000
    try:
        listed = await admin.list_transactions(OPEN_STATES)
        described = [await admin.describe(each.transactional_id) for each in listed]
        known = [
            OpenTransaction(
                each.transactional_id,
                now_ms - each.start_ms,
                each.timeout_ms,
                f"`tidelog transaction abort {each.transactional_id}`",
            )
            for each in described
            if each.start_ms >= 0
        ]
        led = [each.topic_partition for each in view.partitions if each.has_leader]
        hanging = await find_hanging(cluster, led, now_ms, timeout_s=TIMEOUT_S)
        return [*known, *(_hanging(each, now_ms) for each in hanging)]
    except (KafkaError, ConnectionLost, GaveUp):
        return []


def _hanging(found: HangingTransaction, now_ms: int) -> OpenTransaction:
    producer_id = found.producer.producer_id
    remedy = hanging_partition(found.where, producer_id)
    return OpenTransaction(f"producer {producer_id} on {found.where}", found.age_ms(now_ms), 0, remedy)
