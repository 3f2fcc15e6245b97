"""Throttling of requests that take long, with a clock that moves while they are worked on."""

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.protocol.messages.metadata import MetadataResponse
from tidelog.quotas.client_quotas import ClientQuotas, Windows
from tidelog.quotas.entities import DEFAULT, REQUEST_PERCENTAGE, QuotaEntity
from tidelog.runtime.deferred import Deferred
from tidelog.server.session import USER, Principal
from tidelog.server.throttling import Throttling

METADATA = 3


class Worked:
    """A request that takes a while, as the dispatcher starts it."""

    def __init__(self, seconds: float, *, is_broker: bool = False) -> None:
        self.now_s = 0.0
        self.muted_s: list[float] = []
        self.connection = SimpleNamespace(is_privileged=is_broker, mute=self.muted_s.append)
        self._seconds = seconds
        quotas = ClientQuotas(Windows(11, 1), Windows(11, 1))
        quotas.table.replace(QuotaEntity(DEFAULT), {REQUEST_PERCENTAGE: 1})
        self._throttling = Throttling(quotas, SimpleNamespace(monotonic=lambda: self.now_s))

    def outcome(self, outcome: object) -> Any:
        def start(frame: memoryview, connection: object) -> Any:
            self.now_s += self._seconds
            session = SimpleNamespace(principal=Principal(USER, "alice"))
            context = SimpleNamespace(
                session=session,
                client_id=None,
                connection=connection,
                is_forwarded=False,
                mutation_throttle_s=0.0,
            )
            return SimpleNamespace(api_key=METADATA), context, outcome

        return self._throttling.start(start, memoryview(b""), self.connection)[2]  # type: ignore[arg-type]


def test_a_request_that_takes_long_is_followed_by_a_pause_of_one_window_at_most() -> None:
    worked = Worked(0.15)
    response = worked.outcome(MetadataResponse())
    assert (response.throttle_time_ms, worked.muted_s) == (1000, [1.0])


def test_short_requests_and_those_of_brokers_are_not_throttled() -> None:
    assert Worked(0.01).outcome(MetadataResponse()).throttle_time_ms == 0
    assert Worked(10, is_broker=True).outcome(MetadataResponse()).throttle_time_ms == 0


def test_a_response_that_comes_later_is_throttled_when_it_comes() -> None:
    worked = Worked(0.15)
    deferred: Deferred[MetadataResponse] = Deferred()
    found: list[MetadataResponse] = []
    worked.outcome(deferred).listen(found.append, pytest.fail)
    assert worked.muted_s == []
    deferred.resolve(MetadataResponse())
    assert (found[0].throttle_time_ms, worked.muted_s) == (1000, [1.0])
