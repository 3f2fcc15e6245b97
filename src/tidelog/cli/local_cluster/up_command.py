"""`tidelog up`: start of the local cluster, supervised in the foreground or detached."""

import argparse
import json
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from tidelog.cli.client_command import note
from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.certificates import make_certificates
from tidelog.cli.local_cluster.cluster_settings import read_settings
from tidelog.cli.local_cluster.commands import process_json
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.detached_processes import start_detached
from tidelog.cli.local_cluster.hints import hint
from tidelog.cli.local_cluster.plan import Plan, PlanOptions, brokers_per_core, resolve_plan
from tidelog.cli.local_cluster.secure_settings import SECRETS_DIRECTORY, write_client_files
from tidelog.cli.local_cluster.starting import free_port, reject_taken_ports, start_missing
from tidelog.cli.local_cluster.stopping import stop, stop_order

OWNER_ONLY = 0o077
"""Mask of files that others may not read: records, metadata, keys."""
SUPERVISOR_MODULE = "tidelog.cli.local_cluster.detached_supervisor"
SUPERVISOR_START_S = 10.0


def up(options: argparse.Namespace) -> int:
    began = time.monotonic()
    data = DataDirectory(options.data)
    settings = read_settings(options.config, options.overrides)
    requested = PlanOptions(
        options.brokers, options.port, options.zookeeper, options.secure, options.log_format, options.per_core
    )
    requested = brokers_per_core(requested, data.stored_plan(), len(os.sched_getaffinity(0)))
    requested = _with_free_port(data, requested)
    if options.detach and options.console:
        raise CommandError("--console needs the foreground; with --detach, run `tidelog console` next to it")
    if options.json and not options.detach:
        raise CommandError("--json needs --detach; in the foreground, `tidelog status --json` shows the cluster")
    validate_arguments(data, requested, detach=options.detach, restart=options.restart)
    try:
        os.umask(OWNER_ONLY)
        data.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot create {data.name}: {error.strerror}") from error
    before = set(_running(data))
    try:
        return _start_and_watch(data, requested, settings, began, options)
    except KeyboardInterrupt:
        started = [process for broker_id, process in _running(data).items() if broker_id not in before]
        if started:
            note("interrupted: stopping the brokers that were started")
            stop(stop_order(started, None), note)
        raise


def _running(data: DataDirectory) -> dict[int, BrokerProcess]:
    plan = data.stored_plan()
    return {} if plan is None else data.running_brokers(plan)


def _start_and_watch(
    data: DataDirectory,
    requested: PlanOptions,
    settings: Mapping[str, str],
    began: float,
    options: argparse.Namespace,
) -> int:
    if options.detach:
        return _up_detached(data, requested, settings, began, options)
    with data.supervision(restart=options.restart):
        plan, started = _start(data, requested, settings)
        import asyncio

        from tidelog.cli.local_cluster.foreground import watch

        console = _console(data, plan) if options.console else nullcontext("")
        return asyncio.run(watch(data, plan, started, began, restart=options.restart, console=console))


def _console(data: DataDirectory, plan: Plan) -> AbstractContextManager[str]:
    from tidelog.cli.local_cluster.console_process import running_console

    return running_console(data, plan)


def _with_free_port(data: DataDirectory, requested: PlanOptions) -> PlanOptions:
    """Port 0 means free ports. A cluster keeps those that it has: its clients know them."""
    if requested.port != 0:
        return requested
    requested, stored = requested._replace(port=None), data.stored_plan()
    plan = resolve_plan(requested, stored, data.name)
    return requested if stored else requested._replace(port=free_port(plan))


def validate_arguments(data: DataDirectory, requested: PlanOptions, *, detach: bool, restart: bool) -> Plan:
    """Every check that is possible before anything is changed."""
    plan = resolve_plan(requested, data.stored_plan(), data.name)
    running = data.running_brokers(plan)
    for broker_id, process in running.items():
        if process.port != plan.port_of(broker_id):
            raise CommandError(
                f"broker {broker_id} of {data.name} runs on port {process.port};"
                " stop the cluster with `tidelog down` before you change --port"
            )
    reject_taken_ports(plan, [broker_id for broker_id in plan.broker_ids if broker_id not in running])
    supervisor = data.supervisor()
    has_restarts = supervisor is not None and supervisor.restart
    if not detach or (restart and not has_restarts):
        data.reject_second_supervisor()
    return plan


def _start(
    data: DataDirectory, requested: PlanOptions, settings: Mapping[str, str]
) -> tuple[Plan, dict[int, BrokerProcess]]:
    with data.operation():
        plan = resolve_plan(requested, data.stored_plan(), data.name)
        if plan.is_secure:
            make_certificates(data.root / SECRETS_DIRECTORY, plan.broker_ids)
            write_client_files(data.root, plan)
        data.keep(plan, settings)
        return plan, start_missing(data, plan)


def _up_detached(
    data: DataDirectory,
    requested: PlanOptions,
    settings: Mapping[str, str],
    began: float,
    options: argparse.Namespace,
) -> int:
    plan, started = _start(data, requested, settings)
    from tidelog.cli.local_cluster.foreground import wait_for_cluster

    if not wait_for_cluster(data, plan, started, note if options.json else print):
        return 1
    if options.restart and data.supervisor() is None:
        _start_supervisor(data)
    if options.json:
        brokers = [process_json(each) for each in data.running_brokers(plan).values()]
        found = {"bootstrap": plan.bootstrap, "command_config": data.command_config, "data": data.name}
        print(json.dumps({**found, "brokers": brokers}), flush=True)
        return 0
    print(f"{ready_line(plan, started, began)}; `{hint(data, 'down')}` stops {'it' if plan.brokers == 1 else 'them'}")
    print(metrics_line(data, plan))
    for line in client_lines(data):
        print(line)
    print(f"bootstrap: {plan.bootstrap}", flush=True)
    return 0


def client_lines(data: DataDirectory) -> list[str]:
    return [f"client.properties of the administrator: {data.command_config}"] if data.command_config else []


def _start_supervisor(data: DataDirectory) -> None:
    started = start_detached(["-m", SUPERVISOR_MODULE, str(data.root)], data.supervisor_log)
    deadline = time.monotonic() + SUPERVISOR_START_S
    while (found := data.supervisor()) is None or found.identity != started:
        if time.monotonic() > deadline:
            raise CommandError(f"the supervisor process did not start; see its log: {data.supervisor_log}")
        time.sleep(0.01)


def metrics_line(data: DataDirectory, plan: Plan) -> str:
    """Metrics URLs of the brokers. A broker whose metrics port is in use has none."""
    shown = {each: process.metrics_url for each, process in data.running_brokers(plan).items()}
    urls = " ".join(url for url in shown.values() if url is not None)
    without = [str(broker_id) for broker_id, url in shown.items() if url is None]
    missing = f" (none for broker {', '.join(without)}: port in use)" if without else ""
    return f"metrics: {urls or 'none'}{missing}"


def ready_line(plan: Plan, started: Mapping[int, BrokerProcess], began: float) -> str:
    brokers = "1 broker" if plan.brokers == 1 else f"{plan.brokers} brokers"
    if plan.is_per_core:
        brokers += " (one per core, topics have one replica)"
    if not started:
        return f"{brokers} already running"
    return f"{brokers} ready after {time.monotonic() - began:.1f} s"
