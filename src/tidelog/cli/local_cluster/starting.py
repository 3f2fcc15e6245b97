"""Start of broker processes."""

import json
import os
import socket
import time
from collections.abc import Iterable

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.detached_processes import start_detached
from tidelog.cli.local_cluster.plan import HOST, Plan

FIRST_FREE_PORT = 20_000
LAST_FREE_PORT = 32_000
"""Below the range from which the system takes ports for outgoing connections."""
SECOND_LOOK_S = 0.3
"""Pause before a taken port is checked again: another process may hold it only to check whether it is free."""


def reject_taken_ports(plan: Plan, broker_ids: Iterable[int]) -> None:
    for broker_id in broker_ids:
        for port in (plan.port_of(broker_id), *([plan.inter_broker_port_of(broker_id)] if plan.is_secure else [])):
            if _obstacle(port) is not None:
                time.sleep(SECOND_LOOK_S)
            obstacle = _obstacle(port)
            if obstacle is not None:
                raise CommandError(
                    f"broker {broker_id} cannot listen on {HOST}:{port}: {obstacle}; choose another port with --port"
                )


def free_port(plan: Plan) -> int:
    """A port of broker 1 such that the ports of all brokers and their metrics are free."""
    count = LAST_FREE_PORT - FIRST_FREE_PORT
    start = os.getpid() * plan.brokers  # clusters that start at the same time look in different places
    for offset in range(0, count, plan.brokers):
        found = plan._replace(port=FIRST_FREE_PORT + (start + offset) % count)
        offsets = (found.port_of, found.metrics_port_of, found.inter_broker_port_of)
        ports = [port_of(each) for each in found.broker_ids for port_of in offsets]
        if all(_obstacle(port) is None for port in ports):
            return found.port
    raise CommandError(
        f"--port 0: no free ports between {FIRST_FREE_PORT} and {LAST_FREE_PORT}; choose one with --port"
    )


def _obstacle(port: int) -> str | None:
    """Why the port cannot be bound; None if it can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.strerror
        except OverflowError:
            return "not a valid port"
        return None


def _metrics_port(plan: Plan, broker_id: int) -> int | None:
    """None if the port is in use: the broker then runs without metrics."""
    port = plan.metrics_port_of(broker_id)
    return port if _obstacle(port) is None else None


def start_broker(data: DataDirectory, plan: Plan, broker_id: int) -> BrokerProcess:
    metrics_port = _metrics_port(plan, broker_id)
    arguments = data.broker_arguments(plan, broker_id, metrics_port)
    identity = start_detached(arguments, data.log_file(broker_id))
    process = BrokerProcess(broker_id, identity, HOST, plan.port_of(broker_id), arguments, metrics_port)
    data.register(process)
    return process


def start_missing(data: DataDirectory, plan: Plan) -> dict[int, BrokerProcess]:
    """Starts every broker that is not running. Ports are checked first: if one is in use, no broker is started."""
    running = data.running_brokers(plan)
    missing = [broker_id for broker_id in plan.broker_ids if broker_id not in running]
    reject_taken_ports(plan, missing)
    return {broker_id: start_broker(data, plan, broker_id) for broker_id in missing}


def exit_reason(data: DataDirectory, broker_id: int) -> str:
    """Why a broker ended: the last line of its log, which is its error message if it printed one."""
    try:
        with data.log_file(broker_id).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    if not lines:
        return "its log is empty"
    return _shown(lines[-1]).removeprefix("tidelog broker: ")


def _shown(line: str) -> str:
    """An event in JSON as its sentence."""
    try:
        event = json.loads(line)
        return f"{event['message']}{''.join(f' {name}={value}' for name, value in event.get('fields', {}).items())}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return line


LOG_TAIL_BYTES = 4096
