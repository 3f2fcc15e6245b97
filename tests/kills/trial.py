"""One trial: a pipeline under load whose processes are killed by lot, and what became of the records."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.clients.broker import TidelogProcess
from tests.kills.pipeline import KilledPipeline, Topics, records_of_table, records_of_topic, records_of_windows
from tests.kills.plan import (
    CLUSTER_TARGETS,
    ENDING_THE_DRIVER,
    LOCAL_TARGETS,
    PlannedKill,
    Target,
    planned_kills,
)
from tests.kills.process_tree import busy, command_of, descendants, kill_all
from tests.kills.producer import NumberingProducer
from tests.kills.verdict import Findings, Produced, examine, is_good_table, is_good_topic
from tests.spark.cluster import StandaloneCluster
from tests.spark.pipeline_process import PipelineProcess, is_python_worker
from tidelog.runtime.process_identity import ProcessIdentity, identity_of, is_running

PARTITIONS = 2
LOCAL_MASTER = "local[2]"
POLL_S = 0.05
SAMPLE_S = 0.1
RECOVERY_LIMIT_S = 900.0
"""Generous: a driver that starts on a machine with a load of 30 has taken two minutes."""
STOP_LIMIT_S = 120.0
LEFT_BEHIND_LIMIT_S = 120.0

Say = Callable[[str], None]


class TrialFailed(Exception):
    """The pipeline did not recover; the message has its output and log."""


@dataclass(frozen=True, slots=True)
class Trial:
    kills: int
    seed: int
    on_cluster: bool = True
    only: tuple[Target, ...] = ()
    """Kinds of processes to kill; empty: all."""
    batches_before: int = 0
    """Micro-batches that each sink has committed before the first kill."""
    limit_s: float = float("inf")
    """No more kills after this time: what was killed until then is examined."""
    is_stateful: bool = False
    """The pipeline deduplicates, joins and counts in windows, with its state in RocksDB."""

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.only or (CLUSTER_TARGETS if self.on_cluster else LOCAL_TARGETS)


@dataclass(frozen=True, slots=True)
class Outcome:
    kills: int
    produced: int
    topic: Findings
    table: Findings
    restarts: int
    """How often the runner started a query again by itself."""
    windows: Findings | None = None
    """Of a stateful pipeline. Its steps distribute rows by their keys: topics do not keep the order of the source."""

    @property
    def is_good_topic(self) -> bool:
        return is_good_topic(self.topic) if self.windows is None else is_good_table(self.topic)

    @property
    def is_good_windows(self) -> bool:
        """A trial without a complete window shows nothing."""
        return self.windows is None or (is_good_table(self.windows) and self.windows.records > 0)

    @property
    def is_good(self) -> bool:
        return self.is_good_topic and is_good_table(self.table) and self.is_good_windows


def carry_out(trial: Trial, directory: Path, say: Say) -> Outcome:
    with ExitStack() as stack:
        broker = TidelogProcess(directory / "broker")
        broker.start()
        stack.callback(broker.kill)
        cluster = stack.enter_context(StandaloneCluster(directory)) if trial.on_cluster else None
        make_topics(broker.bootstrap)
        master = LOCAL_MASTER if cluster is None else cluster.master
        topics = Topics(broker.bootstrap, "source", "copy")
        pipeline = KilledPipeline(directory, topics, master, is_stateful=trial.is_stateful)
        stack.callback(pipeline.kill)
        producer = NumberingProducer(broker.bootstrap, "source", trial.seed, pipeline.least_read)
        stack.callback(producer.abandon)
        kills = Killing(trial, broker, pipeline, cluster, producer, say).run()
        produced = producer.stop()
        _finish(pipeline, sum(produced.values()))
        return Outcome(
            kills,
            sum(produced.values()),
            examine(produced, records_of_topic(broker.bootstrap, "copy", PARTITIONS)),
            examine(produced, records_of_table(directory)),
            pipeline.output().count("restarting in"),
            _windows(produced, directory) if trial.is_stateful else None,
        )


def _windows(produced: Produced, directory: Path) -> Findings:
    end, records = records_of_windows(directory)
    return examine({key: min(count, end) for key, count in produced.items()}, records)


def make_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("source", "copy")]).values():
        made.result(30)


def _finish(pipeline: KilledPipeline, produced: int) -> None:
    """Until both sinks have all; then an end in order."""
    _wait(pipeline, lambda: pipeline.least_read() >= produced, "has not read everything")
    code = pipeline.stop(STOP_LIMIT_S)
    if code != 0:
        raise TrialFailed(f"the pipeline stopped with exit code {code}:\n{pipeline.output_and_log()}")


def _wait(pipeline: PipelineProcess, is_reached: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + RECOVERY_LIMIT_S
    while not is_reached():
        code = pipeline.exit_code()
        if code is not None:
            raise TrialFailed(f"the pipeline ended by itself with exit code {code}:\n{pipeline.output_and_log()}")
        if time.monotonic() > deadline:
            raise TrialFailed(f"the pipeline {otherwise} after {RECOVERY_LIMIT_S:.0f} s:\n{pipeline.output_and_log()}")
        time.sleep(POLL_S)


class Killing:
    """Kills one process after the other, and starts the driver again at once if it was hit."""

    def __init__(
        self,
        trial: Trial,
        broker: TidelogProcess,
        pipeline: KilledPipeline,
        cluster: StandaloneCluster | None,
        producer: NumberingProducer,
        say: Say,
    ) -> None:
        self._chance = random.Random(trial.seed)
        self._plan = planned_kills(trial.kills, self._chance, trial.targets)
        self._batches_before = trial.batches_before
        self._limit_s = trial.limit_s
        self._broker = broker
        self._pipeline = pipeline
        self._cluster = cluster
        self._producer = producer
        self._say = say
        self._started_s = time.monotonic()
        self._last = pipeline.committed_batches()
        self._left_behind: list[ProcessIdentity] = []

    def run(self) -> int:
        """The number of kills."""
        self._producer.start()
        self._pipeline.start()
        self._wait_for_batches()
        sinks = f"batch of {', '.join(self._pipeline.sinks)}"
        self._say(f"{'#':>3} {'at s':>6}  {'killed':<16} {'pid':>7}  {sinks:<29}  {'waited s':>8}")
        killed = 0
        for number, planned in enumerate(self._plan, 1):
            if time.monotonic() - self._started_s > self._limit_s:
                break
            waited_s = 0.0 if planned.is_hasty else self._wait_for_progress()
            time.sleep(planned.pause_s)
            victim = self._kill(planned)
            batches = ", ".join(map(str, self._last.values()))
            at_s = time.monotonic() - self._started_s
            waited = "hasty" if planned.is_hasty else f"{waited_s:.1f}"
            self._say(f"{number:>3} {at_s:>6.1f}  {planned.target:<16} {victim.pid:>7}  {batches:<29}  {waited:>8}")
            killed = number
        self._wait_for_progress()
        self._expect_nothing_left_behind()
        return killed

    def _wait_for_batches(self) -> None:
        """A batch after the other: a pipeline that does none for long has failed."""
        for number in range(self._batches_before):
            _wait(
                self._pipeline,
                lambda number=number: min(self._pipeline.committed_batches().values()) >= number,  # type: ignore[misc]
                f"has not committed batch {number}",
            )

    def _wait_for_progress(self) -> float:
        """Until each sink has done a batch since the last kill; the seconds it took."""
        began_s, before = time.monotonic(), self._last

        def is_reached() -> bool:
            now = self._pipeline.committed_batches()
            return all(now[sink] > before[sink] for sink in now)

        _wait(self._pipeline, is_reached, "has made no progress")
        return time.monotonic() - began_s

    def _kill(self, planned: PlannedKill) -> ProcessIdentity:
        victims = self._find(planned.target)
        self._last = self._pipeline.committed_batches()
        if planned.target in ENDING_THE_DRIVER:
            self._left_behind += descendants(self._pipeline.pid)
        if planned.target is Target.DRIVER:
            self._pipeline.kill()
        elif planned.target is Target.BROKER:
            self._broker.kill()
            self._broker.start()
        else:
            kill_all(victims)
        if planned.target in ENDING_THE_DRIVER:
            if planned.target is not Target.DRIVER:
                self._pipeline.wait(STOP_LIMIT_S)
            self._pipeline.start()
        return victims[0]

    def _find(self, target: Target) -> list[ProcessIdentity]:
        """One of those that there are, and rather one that works; waits until there is one."""
        found: list[ProcessIdentity] = []

        def is_reached() -> bool:
            found[:] = self._candidates(target)
            return bool(found)

        _wait(self._pipeline, is_reached, f"has no process that is a {target}")
        return [self._chance.choice(busy(found, SAMPLE_S) or found)]

    def _candidates(self, target: Target) -> list[ProcessIdentity]:
        match target:
            case Target.DRIVER | Target.DRIVER_PYTHON:
                own = identity_of(self._pipeline.pid)
                return [] if own is None else [own]
            case Target.DRIVER_JAVA:
                java = self._pipeline.java()
                return [] if java is None else [java]
            case Target.BROKER:
                broker = identity_of(self._broker.pid)
                return [] if broker is None else [broker]
            case Target.EXECUTOR:
                return self._executors()
            case Target.WORKER:
                below = [started for executor in self._executors() for started in descendants(executor.pid)]
                return self._pipeline.python_workers() + [process for process in below if is_python_worker(process)]

    def _executors(self) -> list[ProcessIdentity]:
        return [] if self._cluster is None else self._cluster.executors()

    def _expect_nothing_left_behind(self) -> None:
        """What a killed driver had started ends, even if only the driver itself was killed."""
        deadline = time.monotonic() + LEFT_BEHIND_LIMIT_S
        while left := [process for process in self._left_behind if is_running(process)]:
            if time.monotonic() > deadline:
                raise TrialFailed(f"left behind by a killed driver: {[command_of(process)[:200] for process in left]}")
            time.sleep(POLL_S)
