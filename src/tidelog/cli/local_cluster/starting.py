"""Starting brokers as processes of their own."""

import socket
from collections.abc import Iterable

from tidelog.cli.command_error import Refused
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.plan import HOST, Plan
from tidelog.cli.local_cluster.processes import start_detached


def refuse_taken_ports(plan: Plan, broker_ids: Iterable[int]) -> None:
    for broker_id in broker_ids:
        port = plan.port_of(broker_id)
        obstacle = _obstacle(port)
        if obstacle is not None:
            raise Refused(
                f"broker {broker_id} cannot listen on {HOST}:{port}: {obstacle}; choose other ports with --port"
            )


def _obstacle(port: int) -> str | None:
    """Why nobody can listen there; None if somebody can."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error.strerror
        except OverflowError:
            return "there are no such ports"
        return None


def _metrics_port(plan: Plan, broker_id: int) -> int | None:
    """None if it is taken: that is no reason to do without the broker."""
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
    """Starts every broker that does not run; what cannot be started is refused before any is."""
    running = data.running_brokers(plan)
    missing = [broker_id for broker_id in plan.broker_ids if broker_id not in running]
    refuse_taken_ports(plan, missing)
    return {broker_id: start_broker(data, plan, broker_id) for broker_id in missing}


def last_words(data: DataDirectory, broker_id: int) -> str:
    """Why a broker ended: its own sentence if it had one, else the last line of its log."""
    try:
        with data.log_file(broker_id).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LAST_WORDS_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    if not lines:
        return "it left no log"
    return lines[-1].removeprefix("tidelog broker: ")


LAST_WORDS_BYTES = 4096
