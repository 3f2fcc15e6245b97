"""Replication throttles that operators set and remove while replicas move and fall behind (R24)."""

from collections.abc import Callable
from contextlib import suppress

from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.work.requests import BROKER, CLUSTER_WIDE, alter_settings
from tidelog.simulation.work.writing import ORDERS, WorkOnOrders

MAX_PAUSE_MS = 4000
SIDES = ("leader", "follower")
RATES = ("0", "300", "3000", "30000", None)
"""Bytes per second: from one batch per window to more than is written."""
LISTED_ONE_IN = 2


class Throttles(WorkOnOrders):
    """Rates of all brokers and lists of replicas, at random. At the end there are none, and replicas catch up."""

    name = "throttles"

    async def run(self, is_over: Callable[[], bool]) -> None:
        await self._try_list("*")
        while not is_over():
            with suppress(*ClientErrors):
                await self._limit(self.one_of(SIDES), self.one_of(RATES))
            await self.rest(MAX_PAUSE_MS)
            if self.is_one_in(4):
                await self._try_list(self._some_replicas())
        await self._remove_all()  # writers may wait for replicas that are throttled to a standstill

    def _some_replicas(self) -> str | None:
        if self.is_one_in(4):
            return self.one_of(("*", "", None))
        pairs = [
            f"{each.partition}:{broker_id}"
            for each in self.context.partitions[ORDERS]
            for broker_id in self.context.cluster.machines
            if self.is_one_in(LISTED_ONE_IN)
        ]
        return ",".join(pairs)

    async def _limit(self, side: str, rate: str | None) -> None:
        self.log_event(f"{side} rate {rate}")
        await alter_settings(self._client, CLUSTER_WIDE, {f"{side}.replication.throttled.rate": rate}, resource=BROKER)

    async def _try_list(self, replicas: str | None) -> None:
        with suppress(*ClientErrors):
            await self._list(replicas)

    async def _list(self, replicas: str | None) -> None:
        self.log_event(f"throttled replicas of {ORDERS}: {replicas}")
        await alter_settings(
            self._client, ORDERS, {f"{side}.replication.throttled.replicas": replicas for side in SIDES}
        )

    async def _remove_all(self) -> None:
        for side in SIDES:
            await self.until_done(lambda side=side: self._limit(side, None))  # type: ignore[misc]
        await self.until_done(lambda: self._list(None))
