"""Waiting until a cluster takes writes with acks=all."""

import asyncio
import time
from collections.abc import Callable, Mapping

from tidelog.cli.command_error import Refused
from tidelog.cli.local_cluster.broker_queries import Connections
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.starting import last_words
from tidelog.client.bootstrap import Address
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.types import NO_BROKER

FIRST_POLL_S = 0.01
LONGEST_POLL_S = 0.1
POLL_GROWTH = 1.05
LONGEST_START_S = 120.0
LONGEST_ELECTION_S = 10.0
"""A partition may have lost all its replicas: its topic does not hold up the others for longer."""


class BrokerEnded(Refused):
    """It could not be started, and has said why."""


async def wait_until_ready(
    connections: Connections,
    data: DataDirectory,
    processes: Mapping[int, BrokerProcess],
    on_ready: Callable[[BrokerProcess], None],
) -> None:
    """Every broker answers and counts on every other, and one is controller."""
    deadline = time.monotonic() + LONGEST_START_S
    try:
        async with asyncio.TaskGroup() as group:
            for process in processes.values():
                group.create_task(_wait_for_one(connections, data, process, processes, on_ready, deadline))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _wait_for_one(
    connections: Connections,
    data: DataDirectory,
    process: BrokerProcess,
    processes: Mapping[int, BrokerProcess],
    on_ready: Callable[[BrokerProcess], None],
    deadline: float,
) -> None:
    poll_s = FIRST_POLL_S
    while not _counts_on_all(await _ask(connections, process), processes):
        if not process.is_running:
            raise BrokerEnded(f"broker {process.broker_id} could not be started: {last_words(data, process.broker_id)}")
        if time.monotonic() > deadline:
            raise Refused(
                f"broker {process.broker_id} is still not ready after {LONGEST_START_S:.0f} s and is left to go on;"
                f" its log is {data.log_file(process.broker_id)}"
            )
        await asyncio.sleep(poll_s)
        poll_s = min(LONGEST_POLL_S, poll_s * POLL_GROWTH)
    on_ready(process)


async def _ask(connections: Connections, process: BrokerProcess) -> MetadataResponse | None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return await connections.ask(Address(process.host, process.port), request, MetadataResponse)


def _counts_on_all(answer: MetadataResponse | None, processes: Mapping[int, BrokerProcess]) -> bool:
    if answer is None:
        return False
    members = {(broker.node_id, broker.port) for broker in answer.brokers}
    controller_is_there = any(broker.node_id == answer.controller_id for broker in answer.brokers)
    return controller_is_there and members >= {(each.broker_id, each.port) for each in processes.values()}


async def wait_until_writable(
    connections: Connections, processes: Mapping[int, BrokerProcess], min_in_sync_replicas: int
) -> None:
    """In the eyes of every broker all others are there, and the partitions have leaders and enough replicas in sync.

    A topic that is made then has its replicas on brokers that are ready for it, and the others take writes.
    """
    deadline = time.monotonic() + LONGEST_ELECTION_S
    for process in processes.values():
        while time.monotonic() < deadline:
            answer = await _ask(connections, process)
            if _counts_on_all(answer, processes) and _takes_writes(answer, min_in_sync_replicas):
                break
            await asyncio.sleep(FIRST_POLL_S)


def _takes_writes(answer: MetadataResponse | None, min_in_sync_replicas: int) -> bool:
    return answer is not None and all(
        partition.leader_id != NO_BROKER
        and len(partition.isr_nodes) >= min(min_in_sync_replicas, len(partition.replica_nodes))
        for topic in answer.topics
        for partition in topic.partitions
    )
