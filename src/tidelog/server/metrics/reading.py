"""Values of one scrape, read from the parts of the broker. Nothing is collected between scrapes."""

from collections.abc import Iterator
from functools import cached_property

from tidelog.controller.statistics import ControllerStatistics
from tidelog.groups.statistics import GroupStatistics
from tidelog.replication.fetcher import FetcherStatistics
from tidelog.replication.fetcher_manager import FetcherManager, FetchersStatistics
from tidelog.replication.out_of_sync import OutOfSync, out_of_sync
from tidelog.replication.partition import Partition
from tidelog.replication.traffic import TopicTraffic
from tidelog.runtime.process_usage import ProcessUsage, process_usage
from tidelog.server.connection import ConnectionRegistry
from tidelog.server.fetch_sessions import FetchSessionStatistics
from tidelog.server.metrics.request_window import RequestWindow
from tidelog.server.request_times import Distributions
from tidelog.server.services import Services


class FetchRates:
    """Fetch rate of each fetcher between two scrapes."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, str], tuple[int, float]] = {}

    def lowest(self, fetchers: tuple[FetcherStatistics, ...], now_s: float) -> float:
        before, self._before = self._before, {}
        rates = []
        for fetcher in fetchers:
            key = (fetcher.leader.broker_id, fetcher.client_id)
            self._before[key] = (fetcher.requests, now_s)
            requests, since_s = before.get(key, (0, fetcher.started_s))
            if requests > fetcher.requests:  # a new fetcher with the same name
                requests, since_s = 0, fetcher.started_s
            if now_s > since_s:
                rates.append((fetcher.requests - requests) / (now_s - since_s))
        return min(rates, default=0.0)


class Reading:
    """Created for one scrape. Values that several metrics need are computed once."""

    def __init__(
        self,
        services: Services,
        fetchers: FetcherManager,
        connections: ConnectionRegistry,
        fetch_rates: FetchRates,
        request_window: RequestWindow,
    ) -> None:
        self.services = services
        self.replicas = services.replicas
        self.connections = connections
        self._fetchers = fetchers
        self._fetch_rates = fetch_rates
        self._request_window = request_window

    @cached_property
    def partitions(self) -> list[Partition]:
        """A copy: partitions may come and go during a scrape."""
        return list(self.replicas)

    @cached_property
    def fetchers(self) -> FetchersStatistics:
        return self._fetchers.statistics()

    @cached_property
    def lowest_fetch_rate(self) -> float:
        return self._fetch_rates.lowest(self.fetchers.fetchers, self.services.clock.monotonic())

    @cached_property
    def total_traffic(self) -> TopicTraffic:
        return self.replicas.traffic.total()

    @cached_property
    def topic_traffic(self) -> list[tuple[str, TopicTraffic]]:
        return list(self.replicas.traffic.topics.items())

    @cached_property
    def recent_request_times(self) -> dict[str, Distributions]:
        services = self.services
        return self._request_window.recent(services.clock.monotonic(), services.request_times.distributions())

    @cached_property
    def fetch_sessions(self) -> FetchSessionStatistics:
        return self.services.fetch_sessions.statistics()

    @cached_property
    def groups(self) -> GroupStatistics:
        return self.services.groups.statistics()

    @cached_property
    def process(self) -> ProcessUsage:
        return process_usage()

    @property
    def controller(self) -> ControllerStatistics:
        return self.services.membership.controller.statistics

    @cached_property
    def out_of_sync(self) -> list[tuple[Partition, OutOfSync]]:
        """Out-of-sync replicas of the partitions that this broker leads."""
        return list(self._out_of_sync())

    def _out_of_sync(self) -> Iterator[tuple[Partition, OutOfSync]]:
        wall_offset_ms = self.services.replicas.wall_offset_ms
        for partition in self.partitions:
            leader = partition.leader
            if leader is not None and leader.is_under_replicated:
                for each in out_of_sync(leader, wall_offset_ms):
                    yield partition, each
