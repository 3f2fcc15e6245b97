"""Metrics of client quotas: rates and throttle times of those who have a quota, and denied requests."""

from collections.abc import Callable, Iterator

from tidelog.quotas.client_quotas import Measures
from tidelog.quotas.rates import SampledRate
from tidelog.server.metrics.metric import Kind, Metric, Read, Sample
from tidelog.server.metrics.reading import Reading

CLIENT = ("user", "client_id")

Chosen = Callable[[Reading], Measures[SampledRate]]


def _rates(chosen: Chosen) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        now_s = reading.services.clock.monotonic()
        for client, measure, _ in chosen(reading).items():
            yield client, measure.per_second(now_s)

    return read


def _throttle_times(chosen: Callable[[Reading], Measures[SampledRate]]) -> Read:
    def read(reading: Reading) -> Iterator[Sample]:
        for client, _, throttle_s in chosen(reading).items():
            yield client, throttle_s * 1000

    return read


def _mutation_throttle_times(reading: Reading) -> Iterator[Sample]:
    for client, _, throttle_s in reading.services.client_quotas.mutations.items():
        yield client, throttle_s * 1000


def _of_type(name: str, rate: str, chosen: Chosen) -> tuple[Metric, ...]:
    kind, figure, documentation = name, rate, f"Rate of clients with a quota ({name.lower()})"
    return (
        Metric(Kind.GAUGE, f"kafka.server:type={kind},name={figure}", f"{documentation}.", _rates(chosen), CLIENT),
        Metric(
            Kind.GAUGE,
            f"kafka.server:type={kind},name=throttle-time",
            f"Milliseconds for which clients with a quota ({name.lower()}) were last throttled.",
            _throttle_times(chosen),
            CLIENT,
        ),
    )


CLIENT_QUOTA_METRICS: tuple[Metric, ...] = (
    *_of_type("Produce", "byterate", lambda now: now.services.client_quotas.produce),
    *_of_type("Fetch", "byterate", lambda now: now.services.client_quotas.fetch),
    *_of_type("Request", "request-time", lambda now: now.services.client_quotas.request),
    Metric(
        Kind.GAUGE,
        "kafka.server:type=ControllerMutation,name=throttle-time",
        "Milliseconds for which clients with a quota of changed partitions were last throttled.",
        _mutation_throttle_times,
        CLIENT,
    ),
    Metric(
        Kind.COUNTER,
        "tidelog_denied_operations_total",
        "Operations that the authorizer has denied.",
        lambda now: [((), now.services.audit.denied_count)],
    ),
)
