"""Times of requests in buckets, and how /metrics shows them (kafka.network:type=RequestMetrics)."""

import pytest

from tests.server.harness import Client, Harness, fetch_request
from tests.server.scrape import Scrape, labelled
from tests.simulation.scenario import create_topic, produce, simulate
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.broker import Broker
from tidelog.server.metrics.request_window import WINDOW_S, RequestWindow
from tidelog.server.request_times import (
    BOUNDS_S,
    BUCKETS,
    Distributions,
    RequestTimes,
    RequestTimesTable,
    bucket_of,
    quantile_s,
)
from tidelog.simulation.cluster import SimulatedCluster

REQUESTS = "kafka_network_requestmetrics_"
HISTOGRAM = "tidelog_request_time_seconds"


def counts_of(*times_s: float) -> list[int]:
    counts = [0] * BUCKETS
    for time_s in times_s:
        counts[bucket_of(time_s)] += 1
    return counts


def test_bounds_grow_and_are_inclusive() -> None:
    assert sorted(set(BOUNDS_S)) == BOUNDS_S
    assert bucket_of(BOUNDS_S[3]) == 3
    assert bucket_of(0.0) == 0
    assert bucket_of(1e9) == len(BOUNDS_S)


@pytest.mark.parametrize("time_s", [0.00003, 0.0012, 0.0041, 0.26, 4.4])
def test_a_quantile_lies_in_the_bucket_of_its_request(time_s: float) -> None:
    found = quantile_s(counts_of(*[time_s] * 98, 60.0, 60.0), 0.5)
    assert found is not None
    assert bucket_of(found) == bucket_of(time_s)


def test_of_times_above_all_bounds_only_that_is_known() -> None:
    assert quantile_s(counts_of(1e6), 0.99) == BOUNDS_S[-1]
    assert quantile_s(counts_of(), 0.5) is None


def test_a_request_that_waits_has_local_and_remote_time() -> None:
    times = RequestTimes()
    times.on_waited(began_s=10.0, waits_since_s=10.001, now_s=10.5)
    times.answered[bucket_of(0.002)] += 1
    found = Distributions.of(times)
    assert found.total == counts_of(0.002, 0.5)
    assert found.local == counts_of(0.001, 0.002)
    assert found.remote == counts_of(0.0, 0.499)


def test_versions_are_counted_apart_and_timed_together() -> None:
    table = RequestTimesTable()
    table.of("Produce", 9).answered[3] += 1
    table.of("Produce", 11).answered[3] += 2
    table.of("Metadata", 9)
    assert list(table.counts()) == [("Produce", 9, 1), ("Produce", 11, 2)]
    assert {name: found.total[3] for name, found in table.distributions().items()} == {"Produce": 3}


def test_percentiles_forget_what_is_older_than_two_windows() -> None:
    window, table = RequestWindow(), RequestTimesTable()
    times = table.of("Produce", 9)

    def slow_share(now_s: float) -> tuple[int, int]:
        recent = window.recent(now_s, table.distributions())["Produce"].total
        return recent[30], sum(recent)

    times.answered[30] += 5
    assert slow_share(0.0) == (5, 5)
    times.answered[2] += 1
    assert slow_share(WINDOW_S - 1) == (5, 6), "a scrape in between changes nothing"
    assert slow_share(WINDOW_S) == (0, 1)
    assert slow_share(WINDOW_S * 2) == (0, 0)


def test_metrics_show_the_times_of_a_broker_on_its_own_clock() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await harness.connect()
            await _produce_and_fetch(broker, client)

    run_virtually(main())


async def _produce_and_fetch(broker: Broker, client: Client) -> None:
    await client.create_topic("orders")
    await client.produce("orders", b"a", acks=1)
    await client.produce("orders", b"b", acks=1)
    await client.ask(fetch_request("orders", 2, max_wait_ms=2500), 12, FetchResponse)
    found = Scrape.of(broker)
    assert found(f"{REQUESTS}requests_total", request="Produce", version=9) == 2
    assert found(f"{REQUESTS}requests_total", request="FetchConsumer", version=12) == 1
    assert found(f"{REQUESTS}totaltimems", request="Produce", quantile="0.99") <= 1000 * BOUNDS_S[0]
    assert 2000 < found(f"{REQUESTS}totaltimems", request="FetchConsumer", quantile="0.50") <= 3000
    assert 2000 < found(f"{REQUESTS}remotetimems", request="FetchConsumer", quantile="0.50") <= 3000
    assert found(f"{REQUESTS}localtimems", request="FetchConsumer", quantile="0.99") <= 1000 * BOUNDS_S[0]
    assert found(f"{HISTOGRAM}_bucket", request="FetchConsumer", le="2.0") == 0
    assert found(f"{HISTOGRAM}_bucket", request="FetchConsumer", le="3.0") == 1
    assert found(f"{HISTOGRAM}_bucket", request="FetchConsumer", le="+Inf") == 1
    assert found.all(f"{HISTOGRAM}_count") == {
        labelled(request="Produce"): 2,
        labelled(request="FetchConsumer"): 1,
    }


async def replicate(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    counted = Scrape.of(cluster.broker(1)).all(f"{REQUESTS}requests_total")
    names = {dict(labels)["request"] for labels in counted}
    assert {"FetchFollower", "Produce"} <= names
    assert "FetchConsumer" not in names
    assert "Fetch" not in names


def test_fetches_of_followers_are_distinguished_from_those_of_consumers() -> None:
    simulate(replicate)
