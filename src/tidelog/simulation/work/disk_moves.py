"""Replicas that operators move between the log directories of their broker while topics are in use (R30)."""

from collections.abc import Callable, Iterator
from contextlib import suppress

from tidelog.cluster.topic_names import GROUP_TOPIC, TRANSACTION_TOPIC
from tidelog.replication.alter_log_dirs import AlterLogDirsManager
from tidelog.simulation.clients import ClientErrors
from tidelog.simulation.cluster import LOG_DIRECTORIES
from tidelog.simulation.work.requests import alter_log_dirs
from tidelog.simulation.work.writing import WorkOnOrders
from tidelog.types import BrokerId, TopicPartition

MAX_PAUSE_MS = 1500
CHECK_MS = 500
COPY_BYTES = 400
"""A few records at a time, so that truncations, kills and failures happen in the middle of a move."""
INTERNAL = tuple(TopicPartition(topic, index) for topic in (GROUP_TOPIC, TRANSACTION_TOPIC) for index in range(2))
"""Partitions of coordinators, where there are any."""


class DiskMoves(WorkOnOrders):
    """Any replica to any log directory, replaced or cancelled on the way; in the end no move is under way."""

    name = "disk_moves"

    async def run(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            await self.rest(MAX_PAUSE_MS)
            self._copy_in_small_steps()
            partitions = [*INTERNAL, *(each for found in self.context.partitions.values() for each in found)]
            broker_id = self.one_of(sorted(self.context.cluster.machines))
            count = 1 + self.randomness.below(3)
            with suppress(*ClientErrors):
                await self._move(
                    broker_id, [self.one_of(partitions) for _ in range(count)], self.one_of(LOG_DIRECTORIES)
                )

    def _copy_in_small_steps(self) -> None:
        for broker_id, moves in self._managers():
            moves.copy_bytes = COPY_BYTES
            if moves.unexpected_errors:
                self.noted.append(f"R30 a move on broker {broker_id} failed with an unexpected error")

    def _managers(self) -> Iterator[tuple[BrokerId, AlterLogDirsManager]]:
        for broker_id, machine in self.context.cluster.machines.items():
            services = getattr(machine.broker, "_services", None)  # none while it starts
            if services is not None:
                yield broker_id, services.alter_log_dirs

    async def _move(self, broker_id: BrokerId, partitions: list[TopicPartition], path: str) -> None:
        self.log_event(f"broker {broker_id} moves {', '.join(map(str, partitions))} to {path}")
        await alter_log_dirs(self._client, broker_id, dict.fromkeys(partitions, path))

    async def settle(self) -> None:
        """Moves go on without their operator."""
        while list(self._moving()):
            await self.pause(CHECK_MS)
        self._copy_in_small_steps()

    def _moving(self) -> Iterator[str]:
        for broker_id, machine in self.context.cluster.machines.items():
            logs = None if machine.broker is None else machine.broker._logs
            if logs is None:
                yield f"broker {broker_id} is down"
                continue
            for topic_partition in logs.future.logs:
                if topic_partition in logs.logs:
                    yield f"{topic_partition} on broker {broker_id}"

    def unsettled(self) -> Iterator[str]:
        moving = list(self._moving())
        if moving:
            yield f"I7 moves between log directories do not end: {', '.join(moving)}"
