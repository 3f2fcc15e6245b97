"""Metrics of requests: how many of each API, and how long they took (kafka.network:type=RequestMetrics).

Kafka's times of its queues (RequestQueueTimeMs, ResponseQueueTimeMs) have no counterpart: the event loop decodes,
serves and answers a request in one step, unless it has to wait.
"""

from collections.abc import Callable, Iterator, Mapping

from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading
from tidelog.server.request_times import (
    BOUNDS_S,
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    Counts,
    Distributions,
    quantile_s,
)

QUANTILES = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.99": 0.99, "0.999": 0.999}
"""As the JMX exporter names Kafka's percentiles."""

WITH_BUCKETS = ("Produce", FETCH_CONSUMER, FETCH_FOLLOWER)
WINDOW = "of the last one to two minutes; since the last scrape if that is longer ago"

Chosen = Callable[[Distributions], Counts]


def _counts(reading: Reading) -> Iterator[Sample]:
    for request, version, count in reading.services.request_times.counts():
        yield (request, version), count


def _quantiles(chosen: Chosen) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        for request, recent in reading.recent_request_times.items():
            for name, share in QUANTILES.items():
                value_s = quantile_s(chosen(recent), share)
                if value_s is not None:
                    yield (request, name), round(value_s * 1000, 3)

    return read


def _buckets(reading: Reading) -> Iterator[Sample]:
    """All since the start: these can be added up over brokers, and `rate()` and `histogram_quantile()` apply."""
    found: Mapping[str, Distributions] = reading.services.request_times.distributions()
    for request in WITH_BUCKETS:
        if request not in found:
            continue
        below = 0
        for bound_s, count in zip(BOUNDS_S, found[request].total, strict=False):
            below += count
            yield (request, bound_s), below
        total = sum(found[request].total)
        yield (request, "+Inf"), total
        yield (request, ""), total


def _times(name: str, meaning: str, chosen: Chosen) -> Metric:
    return Metric(
        Kind.GAUGE,
        f"kafka.network:type=RequestMetrics,name={name}",
        f"Milliseconds that a request took{meaning}: percentiles {WINDOW}.",
        _quantiles(chosen),
        ("request", "quantile"),
    )


REQUEST_METRICS: tuple[Metric, ...] = (
    Metric(
        Kind.COUNTER,
        "kafka.network:type=RequestMetrics,name=RequestsPerSec",
        "Answered requests.",
        _counts,
        ("request", "version"),
    ),
    _times("TotalTimeMs", ", from its arrival to its response", lambda found: found.total),
    _times("LocalTimeMs", " until it was answered or had to wait", lambda found: found.local),
    _times(
        "RemoteTimeMs",
        " while it waited for replicas, for records, for a disk or for the controller",
        lambda found: found.remote,
    ),
    Metric(
        Kind.HISTOGRAM,
        "tidelog_request_time_seconds",
        "Time of Produce, FetchConsumer and FetchFollower requests from their arrival to their response, as a histogram"
        " without a sum.",
        _buckets,
        ("request", "le"),
    ),
)
