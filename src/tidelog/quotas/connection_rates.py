"""Rates of new connections: of a broker, of each listener, and of each address (ConnectionQuotas in Kafka, KIP-612)."""

# Core: no clock, no I/O, no await. Times are in seconds of one monotonic clock.

from collections.abc import Mapping

from tidelog.quotas.client_quotas import MAX_MEASURES, Windows
from tidelog.quotas.entities import QuotaTable
from tidelog.quotas.rates import SampledRate

UNLIMITED = 2**31 - 1


class ConnectionRates:
    def __init__(self, windows: Windows, table: QuotaTable | None = None) -> None:
        self._windows = windows
        self._table = QuotaTable() if table is None else table
        self._bound: float = UNLIMITED
        self._listener_bounds: Mapping[str, float] = {}
        self._broker = SampledRate(*windows)
        self._listeners: dict[str, SampledRate] = {}
        self._addresses: dict[str, SampledRate] = {}

    def reconfigure(self, bound: float, listener_bounds: Mapping[str, float]) -> None:
        self._bound = bound
        self._listener_bounds = {name: found for name, found in listener_bounds.items() if found < UNLIMITED}

    def use(self, table: QuotaTable) -> None:
        """The quotas of addresses, which are known only later."""
        self._table = table

    @property
    def is_active(self) -> bool:
        return self._bound < UNLIMITED or bool(self._listener_bounds) or bool(self._table)

    def of_address(self, ip: str, now_s: float) -> float:
        """A new connection of an address: 0, or for how many seconds it is kept waiting before it is closed.

        A connection that is refused does not count: the address gets through again when its rate has gone down.
        """
        bound = self._table.connection_rate(ip)
        if bound is None:
            return 0.0
        rate = self._addresses.get(ip)
        if rate is None:
            if len(self._addresses) >= MAX_MEASURES:
                self._addresses.clear()
            rate = self._addresses[ip] = SampledRate(*self._windows)
        rate.record(1, now_s)
        throttle_s = rate.throttle_s(bound, now_s)
        if throttle_s > 0:
            rate.record(-1, now_s)
        return min(throttle_s, self._windows.seconds)

    def of_broker(self, listener: str, now_s: float) -> float:
        """A new connection: for how many seconds it waits until it is served."""
        return max(
            _recorded(self._broker, self._bound, now_s),
            _recorded(
                self._listeners.setdefault(listener, SampledRate(*self._windows)),
                self._listener_bounds.get(listener, UNLIMITED),
                now_s,
            ),
        )


def _recorded(rate: SampledRate, bound: float, now_s: float) -> float:
    if bound >= UNLIMITED:
        return 0.0
    rate.record(1, now_s)
    return rate.throttle_s(bound, now_s)
