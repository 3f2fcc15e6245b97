"""Metrics of Tidelog brokers, read from their `/metrics` pages. Brokers without such a page have no such charts."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from tidelog.client.admin.admin import Admin
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.console.broker_latencies import Histograms, histograms_of
from tidelog.errors import KafkaError
from tidelog.types import BrokerId

SETTING = "metrics.listener"
TIMEOUT_S = 2.0
MAX_PAGE_BYTES = 16 * 1024 * 1024

COUNTERS = {
    "kafka_server_brokertopicmetrics_bytesin_total": "bytes_in",
    "kafka_server_brokertopicmetrics_bytesout_total": "bytes_out",
    "kafka_server_brokertopicmetrics_replicationbytesin_total": "bytes_replicated",
    "kafka_server_brokertopicmetrics_totalproducerequests_total": "produce_requests",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": "fetch_requests",
    "kafka_server_group_coordinator_metrics_group_completed_rebalance_total": "rebalances",
    "kafka_server_group_coordinator_metrics_consumer_group_rebalance_total": "rebalances",
}
"""Counters without labels, summed over all brokers."""


class Reading(NamedTuple):
    """The metrics pages of all brokers at one time."""

    counters: Mapping[str, float]
    histograms: Mapping[BrokerId, Histograms]
    """Of brokers that answered."""


class BrokerMetrics:
    def __init__(self) -> None:
        self.urls: dict[BrokerId, str | None] = {}
        """Pages of the brokers; None for a broker that has none."""

    async def read(self, cluster: Cluster) -> Reading:
        live = cluster.metadata.brokers
        self.urls = {broker_id: url for broker_id, url in self.urls.items() if broker_id in live}
        for broker_id in live.keys() - self.urls.keys():
            self.urls[broker_id] = await _find_url(cluster, broker_id)
        urls = {broker_id: url for broker_id, url in self.urls.items() if url}
        pages = await asyncio.gather(*(asyncio.to_thread(_read, url) for url in urls.values()))
        lines = {broker_id: page.splitlines() for broker_id, page in zip(urls, pages, strict=True) if page}
        counters: dict[str, float] = {}
        for name, value in (each for page in lines.values() for each in _unlabelled(page)):
            counters[COUNTERS[name]] = counters.get(COUNTERS[name], 0.0) + value
        return Reading(counters, {broker_id: histograms_of(page) for broker_id, page in lines.items()})


async def _find_url(cluster: Cluster, broker_id: BrokerId) -> str | None:
    try:
        settings = await Admin(cluster, timeout_s=TIMEOUT_S).broker_settings(broker_id)
    except (KafkaError, ConnectionLost, GaveUp):
        return None
    listener = next((each.value for each in settings.configs if each.name == SETTING), None)
    if not listener:
        return None
    host, _, port = listener.rpartition(":")
    return f"http://{host or cluster.address_of(broker_id).host}:{port}/metrics"


def _read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            page: bytes = response.read(MAX_PAGE_BYTES)
            return page.decode(errors="replace")
    except (urllib.error.URLError, OSError, ValueError):
        return ""


def _unlabelled(lines: Iterable[str]) -> list[tuple[str, float]]:
    found = []
    for line in lines:
        name, _, value = line.partition(" ")
        if name in COUNTERS:
            with suppress(ValueError):  # a page of somebody else
                found.append((name, float(value)))
    return found
