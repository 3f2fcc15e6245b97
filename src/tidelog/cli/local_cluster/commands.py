"""`tidelog down`, `kill` and `start`, for the cluster of `tidelog up`."""

import argparse
import json
import signal
import time
from collections.abc import Callable

from tidelog.cli.client_command import note
from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.detached_processes import POLL_S, send_signal, wait_until_gone
from tidelog.cli.local_cluster.hints import hint
from tidelog.cli.local_cluster.plan import Plan
from tidelog.cli.local_cluster.starting import reject_taken_ports, start_broker
from tidelog.cli.local_cluster.stopping import MAX_STOP_S, stop, stop_order
from tidelog.runtime.process_identity import ProcessIdentity, is_running

KILLED_S = 10.0


def down(options: argparse.Namespace) -> int:
    data = DataDirectory(options.data)
    plan = data.require_plan()
    running = data.running_brokers(plan)
    supervisor = data.supervisor()
    if not running and supervisor is None:
        raise CommandError(f"no broker of {data.name} is running")
    say = note if options.json else print
    if supervisor is not None:
        _end_supervisor(supervisor.identity, running, say)
    with data.operation():
        left = data.running_brokers(plan)
        if left:
            stop(stop_order(list(left.values()), _controller(data, plan) if len(left) > 1 else None), say)
    stopped = {"data": data.name, "stopped": sorted(running)}
    print(json.dumps(stopped) if options.json else f"all brokers of {data.name} have stopped")
    return 0


def _end_supervisor(identity: ProcessIdentity, running: dict[int, BrokerProcess], say: Callable[[str], None]) -> None:
    """The supervisor stops the brokers: if another process did, it would restart them or report them as crashed."""
    send_signal(identity, signal.SIGTERM)
    deadline = time.monotonic() + MAX_STOP_S
    waiting = list(running.values())
    while is_running(identity) and time.monotonic() < deadline:
        for process in [process for process in waiting if not process.is_running]:
            say(f"broker {process.broker_id} stopped")
            waiting.remove(process)
        time.sleep(POLL_S)
    if is_running(identity):
        send_signal(identity, signal.SIGKILL)


def _controller(data: DataDirectory, plan: Plan) -> int | None:
    import asyncio

    from tidelog.cli.local_cluster.foreground import new_queries
    from tidelog.cli.local_cluster.inspection import inspect_local_cluster

    async def find_controller() -> int | None:
        queries = new_queries(data.command_config)
        try:
            return (await inspect_local_cluster(queries, data, plan)).controller
        finally:
            queries.close()

    return asyncio.run(find_controller())


def kill_broker(options: argparse.Namespace) -> int:
    data = DataDirectory(options.data)
    plan = data.require_plan()
    _reject_unknown(options.broker, data, plan)
    process = data.running_brokers(plan).get(options.broker)
    if process is None:
        raise CommandError(
            f"broker {options.broker} is not running; `{hint(data, f'start {options.broker}')}` starts it"
        )
    send_signal(process.identity, signal.SIGKILL)
    if not wait_until_gone(process.identity, KILLED_S):
        raise CommandError(
            f"broker {options.broker} (pid {process.identity.pid}) received SIGKILL but has not exited after"
            f" {KILLED_S:.0f} s"
        )
    supervisor = data.supervisor()
    is_restarted = supervisor is not None and supervisor.restart
    if options.json:
        print(json.dumps({"broker": options.broker, "pid": process.identity.pid, "is_restarted": is_restarted}))
        return 0
    if is_restarted:
        after = "the supervisor restarts it (--restart)"
    else:
        after = f"`{hint(data, f'start {options.broker}')}` starts it again"
    print(f"broker {options.broker} (pid {process.identity.pid}) was killed; {after}")
    return 0


def start(options: argparse.Namespace) -> int:
    data = DataDirectory(options.data)
    plan = data.require_plan()
    _reject_unknown(options.broker, data, plan)
    with data.operation():
        found = data.running_brokers(plan).get(options.broker)
        if found is not None:
            raise CommandError(f"broker {options.broker} is already running (pid {found.identity.pid})")
        reject_taken_ports(plan, [options.broker])
        process = start_broker(data, plan, options.broker)
    from tidelog.cli.local_cluster.foreground import wait_for_one

    if not wait_for_one(data, process, note if options.json else print):
        return 1
    if options.json:
        print(json.dumps(process_json(process)))
    return 0


def process_json(process: BrokerProcess) -> dict[str, object]:
    address = f"{process.host}:{process.port}"
    return {
        "broker": process.broker_id,
        "address": address,
        "pid": process.identity.pid,
        "metrics": process.metrics_url,
    }


def _reject_unknown(broker_id: int, data: DataDirectory, plan: Plan) -> None:
    if broker_id not in plan.broker_ids:
        known = "only broker 1" if plan.brokers == 1 else f"brokers 1 to {plan.brokers}"
        raise CommandError(f"{data.name} has no broker {broker_id}; it has {known}")
