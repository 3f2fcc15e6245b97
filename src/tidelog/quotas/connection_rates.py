"""Connection creation rates of the broker, each listener and each address (Kafka: ConnectionQuotas, KIP-612)."""

# Core: no clock, no I/O, no await.
# Times are in seconds of one monotonic clock.

from collections.abc import Mapping

from tidelog.quotas.client_quotas import MAX_MEASURES, Windows
from tidelog.quotas.entities import QuotaTable
from tidelog.quotas.rates import SampledRate

UNLIMITED = 2**31 - 1


class ConnectionRates:
    """Both `record` methods take one new connection and return for how many seconds it is throttled."""

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
        """Set the quotas of addresses, which are read from the store after this object was created."""
        self._table = table

    @property
    def is_active(self) -> bool:
        return self._bound < UNLIMITED or bool(self._listener_bounds) or bool(self._table)

    def record_for_address(self, ip: str, now_s: float) -> float:
        """A throttled connection is refused: it is closed after this time.

        It is not counted, so that the address can connect again when its rate has fallen.
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

    def record_for_listener(self, listener: str, now_s: float) -> float:
        """A throttled connection is muted for this time, then served."""
        return max(
            _record(self._broker, self._bound, now_s),
            _record(
                self._listeners.setdefault(listener, SampledRate(*self._windows)),
                self._listener_bounds.get(listener, UNLIMITED),
                now_s,
            ),
        )


def _record(rate: SampledRate, bound: float, now_s: float) -> float:
    if bound >= UNLIMITED:
        return 0.0
    rate.record(1, now_s)
    return rate.throttle_s(bound, now_s)
