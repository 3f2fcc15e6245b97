"""Reassignment work: operators move replicas between brokers while their topics are in use (R37)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from tidelog.cluster.topic_names import GROUP_TOPIC, TRANSACTION_TOPIC
from tidelog.errors import NoReassignmentInProgress, UnknownTopicOrPartition
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.work.base import MIN_IN_SYNC, REPLICAS, WorkContext
from tidelog.simulation.work.requests import alter_reassignments, list_reassignments
from tidelog.simulation.work.writing import WorkOnOrders
from tidelog.types import BrokerId, TopicPartition

MAX_PAUSE_MS = 4000
CHECK_MS = 1000
INTERNAL = tuple(TopicPartition(topic, index) for topic in (GROUP_TOPIC, TRANSACTION_TOPIC) for index in range(2))
"""Internal topics of coordinators, if the run has them."""


class Reassignments(WorkOnOrders):
    """Moves partitions to any brokers, with fewer or more replicas; replaces and cancels moves. Ends with three."""

    name = "reassignments"

    def __init__(self, context: WorkContext) -> None:
        super().__init__(context)
        self._moved: dict[TopicPartition, None] = {}
        self._under_way: list[TopicPartition] = []
        self._is_settled = False

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            partition = self.one_of(
                [*INTERNAL, *(each for found in self.context.partitions.values() for each in found)]
            )
            with suppress(*ClientErrors):
                if self.is_one_in(4):
                    await self._cancel(partition)
                else:
                    await self._move(partition, self._brokers(self._factor()))

    def _factor(self) -> int:
        """Never fewer replicas than min.insync.replicas."""
        least, most = int(MIN_IN_SYNC), min(REPLICAS + 1, len(self.context.cluster.machines))
        return REPLICAS if self.is_one_in(2) else least + self.randomness.below(most - least + 1)

    def _brokers(self, count: int) -> list[BrokerId]:
        left = sorted(self.context.cluster.machines)
        return [left.pop(self.randomness.below(len(left))) for _ in range(count)]

    async def _move(self, partition: TopicPartition, target: Sequence[BrokerId]) -> None:
        self.log_event(f"move {partition} to {target}")
        self._moved[partition] = None
        await alter_reassignments(self._client, {partition: target})

    async def _cancel(self, partition: TopicPartition) -> None:
        with suppress(NoReassignmentInProgress):
            await alter_reassignments(self._client, {partition: None})
            self.log_event(f"cancelled the move of {partition}")

    async def settle(self) -> None:
        for partition in list(self._moved):
            await self._move_until_done(partition, self._brokers(min(REPLICAS, len(self.context.cluster.machines))))
        while under_way := await self.until_done(lambda: list_reassignments(self._client)):
            self._under_way = under_way
            await self.pause(CHECK_MS)
        self._is_settled = True

    async def _move_until_done(self, partition: TopicPartition, target: Sequence[BrokerId]) -> None:
        async def move() -> None:
            with suppress(UnknownTopicOrPartition):
                await self._move(partition, target)

        await self.until_done(move)

    def unsettled(self) -> Iterator[str]:
        if not self._is_settled:
            yield f"I7 reassignments do not end: {', '.join(map(str, self._under_way))}"
