"""Readiness of a cluster: waiting until it accepts writes with acks=all."""

import asyncio
import time
from collections.abc import Callable, Mapping

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.broker_queries import BrokerQueries
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.starting import exit_reason
from tidelog.client.network.bootstrap import Address
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.types import NO_BROKER

FIRST_POLL_S = 0.01
MAX_POLL_S = 0.1
POLL_GROWTH = 1.05
MAX_START_S = 120.0
MAX_ELECTION_S = 10.0
"""Upper limit: a partition that lost all its replicas must not block the start for longer."""


class BrokerEnded(CommandError):
    """A broker ended while it was starting; the message has its reason."""


async def wait_until_ready(
    queries: BrokerQueries,
    data: DataDirectory,
    processes: Mapping[int, BrokerProcess],
    on_ready: Callable[[BrokerProcess], None],
) -> None:
    """Waits until every broker answers and knows all others and the controller."""
    deadline = time.monotonic() + MAX_START_S
    try:
        async with asyncio.TaskGroup() as group:
            for process in processes.values():
                group.create_task(_wait_for_one(queries, data, process, processes, on_ready, deadline))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _wait_for_one(
    queries: BrokerQueries,
    data: DataDirectory,
    process: BrokerProcess,
    processes: Mapping[int, BrokerProcess],
    on_ready: Callable[[BrokerProcess], None],
    deadline: float,
) -> None:
    poll_s = FIRST_POLL_S
    while not _sees_all_brokers(await _ask(queries, process), processes):
        if not process.is_running:
            raise BrokerEnded(f"broker {process.broker_id} did not start: {exit_reason(data, process.broker_id)}")
        if time.monotonic() > deadline:
            raise CommandError(
                f"broker {process.broker_id} is not ready after {MAX_START_S:.0f} s and keeps running;"
                f" see its log: {data.log_file(process.broker_id)}"
            )
        await asyncio.sleep(poll_s)
        poll_s = min(MAX_POLL_S, poll_s * POLL_GROWTH)
    on_ready(process)


async def _ask(queries: BrokerQueries, process: BrokerProcess) -> MetadataResponse | None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return await queries.ask(Address(process.host, process.port), request, MetadataResponse)


def _sees_all_brokers(response: MetadataResponse | None, processes: Mapping[int, BrokerProcess]) -> bool:
    if response is None:
        return False
    members = {(broker.node_id, broker.port) for broker in response.brokers}
    controller_is_there = any(broker.node_id == response.controller_id for broker in response.brokers)
    return controller_is_there and members >= {(each.broker_id, each.port) for each in processes.values()}


async def wait_until_writable(
    queries: BrokerQueries, processes: Mapping[int, BrokerProcess], min_in_sync_replicas: int
) -> None:
    """Waits until every broker sees all brokers, a leader for each partition and enough in-sync replicas.

    From then on new topics get replicas on ready brokers, and existing topics accept writes.
    """
    deadline = time.monotonic() + MAX_ELECTION_S
    for process in processes.values():
        while time.monotonic() < deadline:
            response = await _ask(queries, process)
            if _sees_all_brokers(response, processes) and _is_writable(response, min_in_sync_replicas):
                break
            await asyncio.sleep(FIRST_POLL_S)


def _is_writable(response: MetadataResponse | None, min_in_sync_replicas: int) -> bool:
    return response is not None and all(
        partition.leader_id != NO_BROKER
        and len(partition.isr_nodes) >= min(min_in_sync_replicas, len(partition.replica_nodes))
        for topic in response.topics
        for partition in topic.partitions
    )
