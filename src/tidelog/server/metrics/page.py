"""HTTP page `/metrics`. The table of metrics is imported with the first scrape only."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.replication.fetcher_manager import FetcherManager
    from tidelog.server.connection import ConnectionRegistry
    from tidelog.server.metrics.reading import FetchRates
    from tidelog.server.metrics.request_window import RequestWindow
    from tidelog.server.services import Services

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    content_type = CONTENT_TYPE

    def __init__(self, services: "Services", fetchers: "FetcherManager", connections: "ConnectionRegistry") -> None:
        self._services = services
        self._fetchers = fetchers
        self._connections = connections
        self._between_scrapes: tuple[FetchRates, RequestWindow] | None = None

    def pieces(self) -> Iterator[bytes]:
        from tidelog.server.metrics.catalogue import METRICS
        from tidelog.server.metrics.exposition import pieces
        from tidelog.server.metrics.reading import FetchRates, Reading
        from tidelog.server.metrics.request_window import RequestWindow

        if self._between_scrapes is None:
            self._between_scrapes = FetchRates(), RequestWindow()
        reading = Reading(self._services, self._fetchers, self._connections, *self._between_scrapes)
        return pieces(METRICS, reading)
