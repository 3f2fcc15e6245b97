"""Workers copy a topic in transactions while they and brokers are killed: the copy must be exact."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tests.churn.brokers import Brokers, wait_for
from tests.churn.commit_watch import CommitWatch
from tests.churn.copying import ABORTED
from tests.churn.judging import steps_backwards
from tests.churn.processes import Program
from tests.processes.history import FollowingReader, IdempotentWriter

PARTITIONS = 3
PACE_S = 0.02
MOMENT_S = 1.0

HANGING = frozenset({"confluent-kafka"})
"""librdkafka may wait for ever for the coordinator of a group that has died (its issues 5511 and 5456)."""

Say = Callable[[str], None]


class Disturbance(StrEnum):
    KILL_WORKER = "a worker is killed"
    STAND_STILL = "a worker stands still for a moment"
    OVERSLEEP = "a worker stands still until the others have taken over"
    KILL_LEADER = "the leader of a partition of the copy is killed"
    KILL_GROUP_COORDINATOR = "the coordinator of the group is killed"
    KILL_TRANSACTION_COORDINATOR = "the coordinator of a worker's transactions is killed"


@dataclass(frozen=True, slots=True)
class TransactionTrial:
    client: str
    disturbances: tuple[Disturbance, ...]
    seed: int


class Outcome(NamedTuple):
    copied: int
    problems: list[str]


class Copying:
    def __init__(self, trial: TransactionTrial, brokers: Brokers, name: str, directory: Path, say: Say) -> None:
        self._trial = trial
        self._chance = random.Random(trial.seed)
        self._brokers = brokers
        self._name = name
        self._source, self._target, self._group = f"{name}-source", f"{name}-copy", f"{name}-group"
        self._directory = directory
        self._say = say
        self._workers: dict[int, Program] = {}
        brokers.create_topic(self._source, PARTITIONS)
        brokers.create_topic(self._target, PARTITIONS)
        self._writer = IdempotentWriter(brokers.bootstrap, self._source, PARTITIONS, pace_s=PACE_S)
        self._reader = FollowingReader(brokers.bootstrap, self._target, PARTITIONS)
        self._watch = CommitWatch(brokers.bootstrap, self._group)

    def run(self) -> Outcome:
        with ExitStack() as stack:
            stack.callback(self._kill_all)
            stack.enter_context(self._reader)
            stack.enter_context(self._watch)
            with self._writer:
                for number in range(PARTITIONS):
                    self._start(number)
                self._wait_for_progress("they have begun")
                for disturbance in self._trial.disturbances:
                    began_s = time.monotonic()
                    victim = self._disturb(disturbance)
                    self._wait_for_progress(disturbance)
                    self._say(f"  {disturbance} ({victim}): went on after {time.monotonic() - began_s:.1f} s")
            assert self._writer.failed == []
            wait_for(lambda: self._is_beyond(self._produced()), lambda: self._description("not all is copied"))
            wait_for(self._is_all_read, lambda: self._description("not all of the copy can be read"))
            self._end_all()
        return Outcome(sum(self._produced().values()), self._problems())

    # -- workers

    def _start(self, number: int) -> None:
        arguments = [self._brokers.bootstrap, self._group, self._source, self._target, self._id(number), str(number)]
        self._workers[number] = Program(
            f"worker-{number}", "tests.churn.worker", [self._trial.client, *arguments], self._directory
        )

    def _restart_all(self) -> None:
        """As a supervisor of workers does with those that hang."""
        self._kill_all()
        for number in range(PARTITIONS):
            self._start(number)

    def _id(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            worker.kill()

    def _end_all(self) -> None:
        for worker in self._workers.values():
            worker.ask_to_end()
        for worker in self._workers.values():
            worker.wait_until_ended()

    # -- disturbances

    def _disturb(self, disturbance: Disturbance) -> str:
        number = self._chance.randrange(PARTITIONS)
        worker = self._workers[number]
        match disturbance:
            case Disturbance.KILL_WORKER:
                worker.kill()
                self._start(number)
            case Disturbance.STAND_STILL:
                worker.stand_still()
                time.sleep(MOMENT_S)
                worker.go_on()
            case Disturbance.OVERSLEEP:
                worker.stand_still()
                try:
                    self._wait_for_progress("others have taken over")
                finally:
                    worker.go_on()
            case Disturbance.KILL_LEADER:
                return self._kill_broker(lambda: self._brokers.leader(self._target, number))
            case Disturbance.KILL_GROUP_COORDINATOR:
                return self._kill_broker(lambda: self._brokers.coordinator_of_group(self._group))
            case Disturbance.KILL_TRANSACTION_COORDINATOR:
                return self._kill_broker(lambda: self._brokers.coordinator_of_transactions(self._id(number)))
        return worker.name

    def _kill_broker(self, find: Callable[[], int]) -> str:
        broker_id = self._brokers.kill_found(find)
        try:
            wait_for(lambda: find() not in (-1, broker_id), lambda: f"nobody takes over from broker {broker_id}")
            if self._trial.client in HANGING:
                self._restart_all()
            self._wait_for_progress("the other brokers have taken over")
        finally:
            self._brokers.bring_back(broker_id)
        for topic in (self._source, self._target):
            self._brokers.wait_until_in_sync(topic)
        return f"broker {broker_id}"

    # -- progress

    def _wait_for_progress(self, since: str) -> None:
        """Everything that was written up to now is copied."""
        written = {partition: self._writer.count(partition) + 1 for partition in range(PARTITIONS)}
        wait_for(
            lambda: self._is_beyond(written), lambda: self._description(f"no progress since {since}, to {written}")
        )

    def _is_beyond(self, wanted: dict[int, int]) -> bool:
        for worker in self._workers.values():
            worker.check()
        return self._watch.is_beyond(wanted)

    def _is_all_read(self) -> bool:
        return all(self._reader.count(partition) >= count for partition, count in self._produced().items())

    def _produced(self) -> dict[int, int]:
        return {partition: len(sent) for partition, sent in self._writer.sent.items()}

    def _description(self, what: str) -> str:
        read = {partition: self._reader.count(partition) for partition in range(PARTITIONS)}
        lines = [f"{what}: committed {self._watch.committed()}, produced {self._produced()}, read {read}"]
        lines += [
            f"{worker.name} running={worker.is_running} {worker.output[-1500:]}" for worker in self._workers.values()
        ]
        return "\n".join(lines)

    # -- the verdict

    def _problems(self) -> list[str]:
        return [
            *self._reader.contradictions,
            *steps_backwards(self._watch.observed),
            *inexact(
                self._writer.sent,
                {partition: [seen[offset] for offset in sorted(seen)] for partition, seen in self._reader.seen.items()},
            ),
        ]


def inexact(sent: dict[int, list[bytes]], copied: dict[int, list[bytes]]) -> list[str]:
    """Each partition of the copy has every record of the source once, in its order, and nothing else."""
    problems = []
    for partition, expected in sent.items():
        found = copied.get(partition, [])
        if found == expected:
            continue
        aborted = [value for value in found if value.startswith(ABORTED)]
        lost, again = len(set(expected) - set(found)), len(found) - len(set(found))
        problems.append(
            f"partition {partition}: {len(found)} copied of {len(expected)}, lost {lost}, again {again},"
            f" seen though aborted {aborted[:3]}"
        )
    return problems


def carry_out(trial: TransactionTrial, brokers: Brokers, name: str, directory: Path, say: Say) -> Outcome:
    directory.mkdir(parents=True, exist_ok=True)
    return Copying(trial, brokers, name, directory, say).run()
