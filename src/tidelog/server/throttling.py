"""Throttling of clients that exceed their quotas: the response has a throttle time, for which the connection is muted.

The dispatcher uses it only while there are quotas.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.protocol.structs import Response
from tidelog.quotas.client_quotas import ClientQuotas
from tidelog.runtime.clock import Clock
from tidelog.runtime.deferred import mapped

if TYPE_CHECKING:
    from tidelog.server.connection import Connection
    from tidelog.server.dispatch import Outcome, RequestContext, Route

PRODUCE, FETCH = 0, 1
Started = tuple["Route", "RequestContext", "Outcome"]


class Throttling:
    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def start(
        self,
        start: Callable[[memoryview, "Connection"], Started],
        frame: memoryview,
        connection: "Connection",
    ) -> Started:
        """Start a request, and throttle its client by what it costs. Brokers have no quotas, nor what they forward.

        They forward neither Produce nor Fetch, so those always count: without an authorizer a client could evade its
        quotas with the client id of a broker.
        """
        began_s, size = self._clock.monotonic(), len(frame)
        route, context, outcome = start(frame, connection)
        if connection.is_privileged or (context.is_forwarded and route.api_key not in (PRODUCE, FETCH)):
            return route, context, outcome
        worked_s = self._clock.monotonic() - began_s

        def throttle(response: Any) -> Response | None:
            return self._throttle(response, route, context, size, worked_s)

        return route, context, mapped(outcome, throttle)

    def _throttle(
        self, response: Response | None, route: "Route", context: "RequestContext", size: int, worked_s: float
    ) -> Response | None:
        quotas, now_s = self._quotas, self._clock.monotonic()
        user, client_id = context.session.principal.name, context.client_id or ""
        throttle_s = max(quotas.worked(user, client_id, worked_s, now_s), context.mutation_throttle_s)
        if route.api_key == PRODUCE:
            throttle_s = max(throttle_s, quotas.produced(user, client_id, size, now_s))
        elif isinstance(response, FetchResponse):
            throttle_s = max(throttle_s, quotas.fetched(user, client_id, _record_bytes(response), now_s))
        throttle_ms = round(throttle_s * 1000)
        if throttle_ms > 0:
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
            context.connection.mute(throttle_ms / 1000)
        return response


def _record_bytes(response: FetchResponse) -> int:
    return sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)
