"""Round trips to brokers: how long each takes to answer a small request, as a client meets it."""

import asyncio
import time

from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import KafkaError
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.types import BrokerId

TIMEOUT_S = 3.0


async def round_trips_s(cluster: Cluster) -> list[float]:
    """One for each broker that answers. Brokers answer from memory, so it is the delay of network and queue."""
    found = await asyncio.gather(*(_round_trip_s(cluster, broker_id) for broker_id in cluster.metadata.brokers))
    return [seconds for seconds in found if seconds is not None]


async def _round_trip_s(cluster: Cluster, broker_id: BrokerId) -> float | None:
    try:
        connection = await cluster.connections.to(cluster.address_of(broker_id))  # opening one is not measured
        began_s = time.perf_counter()
        await connection.ask(MetadataRequest(topics=[]), MetadataResponse, timeout_s=TIMEOUT_S)
    except (KafkaError, ConnectionLost, GaveUp, TimeoutError):
        return None
    return time.perf_counter() - began_s
