"""A group under churn: members come, leave, die and stand still, and brokers die, while a producer writes."""

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
from tests.churn.journal import Kind, read_journal
from tests.churn.judging import Life, double_owners, passed_over, steps_backwards
from tests.churn.membership import Protocol
from tests.churn.processes import Program
from tests.processes.history import IdempotentWriter

PARTITIONS = 4
MEMBERS = 3
PACE_S = 0.02
MOMENT_S = 1.0
"""Shorter than a session: nobody loses anything by standing still for so long."""

Say = Callable[[str], None]


class Disturbance(StrEnum):
    JOIN = "a member joins"
    LEAVE = "a member leaves"
    KILL_MEMBER = "a member is killed"
    STAND_STILL = "a member stands still for a moment"
    OVERSLEEP = "a member stands still until the others have taken over"
    KILL_COORDINATOR = "the coordinator is killed"
    KILL_LEADER = "the leader of a partition is killed"


@dataclass(frozen=True, slots=True)
class GroupTrial:
    clients: tuple[str, ...]
    """Members are of these clients, in turn."""
    protocol: Protocol
    disturbances: tuple[Disturbance, ...]
    seed: int
    is_static: bool = False


class Outcome(NamedTuple):
    produced: int
    processed: int
    """More than were produced: some were read again."""
    assignments: int
    problems: list[str]


class Slot:
    """Where one member after the other lives; a static one comes back under the same name."""

    def __init__(self, number: int, client: str) -> None:
        self.name = f"member-{number}-{client}"
        self.client = client
        self.programs: list[tuple[Program, Path]] = []

    @property
    def program(self) -> Program | None:
        return self.programs[-1][0] if self.programs and self.programs[-1][0].is_running else None


class Churn:
    def __init__(self, trial: GroupTrial, brokers: Brokers, topic: str, directory: Path, say: Say) -> None:
        self._trial = trial
        self._chance = random.Random(trial.seed)
        self._brokers = brokers
        self._topic = topic
        self._group = f"group-of-{topic}"
        self._directory = directory
        self._say = say
        self._slots = [Slot(number, trial.clients[number % len(trial.clients)]) for number in range(MEMBERS + 1)]
        self._writer = IdempotentWriter(brokers.bootstrap, topic, PARTITIONS, pace_s=PACE_S)
        self._watch = CommitWatch(brokers.bootstrap, self._group)

    def run(self) -> Outcome:
        with ExitStack() as stack:
            stack.callback(self._kill_all)
            stack.enter_context(self._watch)
            with self._writer:
                for slot in self._slots[:MEMBERS]:
                    self._start(slot)
                for slot in self._slots[:MEMBERS]:
                    self._wait_until_assigned(slot)
                self._wait_for_progress("the group has begun")
                for disturbance in self._trial.disturbances:
                    began_s = time.monotonic()
                    victim = self._disturb(disturbance)
                    self._wait_for_progress(disturbance)
                    self._say(f"  {disturbance} ({victim}): went on after {time.monotonic() - began_s:.1f} s")
            self._wait_until_all_is_committed()
            self._end_all()
        return self._judged()

    # -- members

    def _start(self, slot: Slot) -> None:
        journal = self._directory / f"{slot.name}-{len(slot.programs)}.journal"
        arguments = [slot.client, self._brokers.bootstrap, self._group, self._topic, str(journal)]
        arguments.append(self._trial.protocol)
        if self._trial.is_static:
            arguments.append(slot.name)
        slot.programs.append((Program(slot.name, "tests.churn.member", arguments, self._directory), journal))

    def _wait_until_assigned(self, slot: Slot) -> None:
        """There are as many partitions as members, so each gets some."""
        _, journal = slot.programs[-1]

        def is_assigned() -> bool:
            self._check_programs()
            return any(entry.kind is Kind.ASSIGNED and entry.partitions for entry in read_journal(journal))

        wait_for(is_assigned, lambda: self._description(f"{slot.name} gets no partitions", {}))

    def _present(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.program is not None]

    def _absent(self) -> list[Slot]:
        """First who is away for longest: one that was killed just now still counts as a member."""
        absent = [slot for slot in self._slots if slot.program is None]
        return sorted(absent, key=lambda slot: slot.programs[-1][0].ended_at_s if slot.programs else 0.0)

    def _kill_all(self) -> None:
        for slot in self._present():
            assert slot.program is not None
            slot.program.kill()

    def _end_all(self) -> None:
        programs = [slot.program for slot in self._present()]
        for program in programs:
            assert program is not None
            program.ask_to_end()
        for program in programs:
            assert program is not None
            program.wait_until_ended()

    # -- disturbances

    def _disturb(self, disturbance: Disturbance) -> str:
        match disturbance:
            case Disturbance.JOIN:
                return self._join()
            case Disturbance.KILL_COORDINATOR:
                return self._kill_broker(lambda: self._brokers.coordinator_of_group(self._group))
            case Disturbance.KILL_LEADER:
                partition = self._chance.randrange(PARTITIONS)
                return self._kill_broker(lambda: self._brokers.leader(self._topic, partition))
        slot = self._chance.choice(self._present())
        program = slot.program
        assert program is not None
        match disturbance:
            case Disturbance.LEAVE:
                program.ask_to_end()
                program.wait_until_ended()
                self._replace_last()
            case Disturbance.KILL_MEMBER:
                program.kill()
                self._replace_last()
            case Disturbance.STAND_STILL:
                program.stand_still()
                time.sleep(MOMENT_S)
                program.go_on()
            case Disturbance.OVERSLEEP:
                program.stand_still()
                try:
                    self._wait_for_progress("others have taken over")
                finally:
                    program.go_on()
        return slot.name

    def _join(self) -> str:
        absent = self._absent()
        if not absent:
            return "nobody: all are there"
        self._start(absent[0])
        self._wait_until_assigned(absent[0])
        return absent[0].name

    def _replace_last(self) -> None:
        """A group never gets so small that nothing is left to disturb."""
        if len(self._present()) < MEMBERS - 1:
            self._join()

    def _kill_broker(self, find: Callable[[], int]) -> str:
        broker_id = self._brokers.kill_found(find)
        try:
            self._wait_for_progress("the other brokers have taken over")
        finally:
            self._brokers.bring_back(broker_id)
        self._brokers.wait_until_in_sync(self._topic)
        return f"broker {broker_id}"

    # -- progress

    def _wait_for_progress(self, since: str) -> None:
        """Everything that was written up to now is committed, by whichever member."""
        written = {partition: self._writer.count(partition) + 1 for partition in range(PARTITIONS)}
        wait_for(lambda: self._is_beyond(written), lambda: self._description(f"no progress since {since}", written))

    def _wait_until_all_is_committed(self) -> None:
        assert self._writer.failed == []
        wait_for(
            lambda: self._is_beyond(self._produced()),
            lambda: self._description("not all is committed", self._produced()),
        )

    def _is_beyond(self, wanted: dict[int, int]) -> bool:
        self._check_programs()
        return self._watch.is_beyond(wanted)

    def _check_programs(self) -> None:
        for slot in self._slots:
            for program, _ in slot.programs:
                program.check()

    def _produced(self) -> dict[int, int]:
        return {partition: len(sent) for partition, sent in self._writer.sent.items()}

    def _description(self, what: str, wanted: dict[int, int]) -> str:
        lines = [f"{what}: committed {self._watch.committed()}, wanted {wanted}"]
        for slot in self._slots:
            for program, journal in slot.programs:
                entries = [entry for entry in read_journal(journal) if entry.kind is not Kind.PROCESSED]
                lines.append(f"{slot.name} running={program.is_running} {entries[-4:]} {program.output[-1000:]}")
        return "\n".join(lines)

    # -- the verdict

    def _judged(self) -> Outcome:
        lives = [Life(slot.name, list(read_journal(journal))) for slot in self._slots for _, journal in slot.programs]
        owned = lives if self._trial.is_static else _each_its_own(lives)
        problems = [
            *double_owners(owned),
            *passed_over(lives, self._produced()),
            *steps_backwards(self._watch.observed),
        ]
        entries = [entry for life in lives for entry in life.entries]
        processed = sum(
            entry.details["last"] - entry.details["first"] + 1 for entry in entries if entry.kind is Kind.PROCESSED
        )
        assignments = sum(1 for entry in entries if entry.kind is Kind.ASSIGNED)
        return Outcome(sum(self._produced().values()), processed, assignments, problems)


def _each_its_own(lives: list[Life]) -> list[Life]:
    """A member that is not static never comes back as the same."""
    return [life._replace(owner=f"{life.owner}/{number}") for number, life in enumerate(lives)]


def carry_out(trial: GroupTrial, brokers: Brokers, topic: str, directory: Path, say: Say) -> Outcome:
    directory.mkdir(parents=True, exist_ok=True)
    brokers.create_topic(topic, PARTITIONS)
    return Churn(trial, brokers, topic, directory, say).run()
