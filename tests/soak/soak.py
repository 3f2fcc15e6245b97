"""A soak: three brokers of `tidelog up` under steady work of all kinds, watched, and judged at the end."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient

from tests.churn.brokers import Overdue, wait_for
from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.processes.history import FollowingReader, IdempotentWriter, check, read_all
from tests.soak.activities import (
    PARTITIONS,
    STREAM,
    STREAM_SETTINGS,
    TRANSACTIONS,
    Groups,
    StreamReader,
    StreamWriter,
    Topics,
    TransactionReader,
    TransactionWriter,
    create_topic,
)
from tests.soak.activity import Activity
from tests.soak.usage import Usage, growth, usage_of

BROKERS = 3
SAMPLE_S = 1.0
HISTORY = "soak-history"
HISTORY_PACE_S = 0.1
"""Every record of it stays in memory until the end, when it is compared with the logs."""

SETTINGS = ("log.segment.delete.delay.ms=1000", "group.initial.rebalance.delay.ms=0")
Say = Callable[[str], None]


class Row(NamedTuple):
    """One activity of the table."""

    name: str
    done: dict[str, int]
    p50_ms: float
    p99_ms: float
    max_ms: float
    errors: dict[str, int]


class Report(NamedTuple):
    seconds: float
    rows: list[Row]
    usage: dict[str, list[Usage]]
    """By broker."""
    known_races: int
    problems: list[str]

    @property
    def is_good(self) -> bool:
        return not self.problems


class Soak:
    def __init__(self, cluster: LocalCluster, records_per_s: int, say: Say) -> None:
        self._cluster = cluster
        self._say = say
        self._pids = {f"broker {broker_id}": cluster.pid(broker_id) for broker_id in range(1, BROKERS + 1)}
        self._usage: dict[str, list[Usage]] = {name: [] for name in self._pids}
        self._problems: list[str] = []
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        create_topic(admin, STREAM, PARTITIONS, STREAM_SETTINGS)
        create_topic(admin, TRANSACTIONS, PARTITIONS)
        create_topic(admin, HISTORY, PARTITIONS)
        self._stream, self._stream_reader = StreamWriter(bootstrap, records_per_s), StreamReader(bootstrap)
        self._transactions = [TransactionWriter(bootstrap, f"soak-{number}") for number in range(2)]
        self._transaction_reader = TransactionReader(bootstrap)
        self._writers: list[Activity] = [self._stream, *self._transactions, Groups(bootstrap), Topics(bootstrap)]
        self._readers: list[Activity] = [self._stream_reader, self._transaction_reader]

    def run(self, seconds: float, report_s: float) -> Report:
        began_s = time.monotonic()
        bootstrap = self._cluster.bootstrap
        with ExitStack() as stack:
            reader = stack.enter_context(FollowingReader(bootstrap, HISTORY, PARTITIONS))
            with IdempotentWriter(bootstrap, HISTORY, PARTITIONS, pace_s=HISTORY_PACE_S) as writer:
                stack.enter_context(self._running(self._readers))
                with self._running(self._writers):
                    self._watch(began_s, seconds, report_s)
            self._wait_until_all_is_read()
        self._judge_history(writer, reader)
        for _ in range(3):  # what was used by clients that are gone is given back
            self._sample()
            time.sleep(SAMPLE_S)
        return self._report(time.monotonic() - began_s)

    @contextmanager
    def _running(self, activities: Sequence[Activity]) -> Iterator[None]:
        for activity in activities:
            activity.start()
        try:
            yield
        finally:
            for activity in activities:
                activity.end()
            for activity in activities:
                activity.join()

    # -- on the way

    def _watch(self, began_s: float, seconds: float, report_s: float) -> None:
        next_report_s = report_s
        while (passed_s := time.monotonic() - began_s) < seconds:
            self._sample()
            if passed_s >= next_report_s:
                self._say(self._progress(passed_s))
                next_report_s += report_s
            time.sleep(min(SAMPLE_S, seconds - passed_s))

    def _sample(self) -> None:
        for name, pid in self._pids.items():
            found = usage_of(pid)
            if found is not None:
                self._usage[name].append(found)
            elif (problem := f"{name} has died") not in self._problems:
                self._problems.append(problem)

    def _progress(self, passed_s: float) -> str:
        done: Counter[str] = Counter()
        for activity in (*self._writers, *self._readers):
            done.update(activity.done)
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(done.items()))
        memory = "/".join(str(samples[-1].memory_bytes >> 20) for samples in self._usage.values() if samples)
        errors = sum(sum(activity.errors.values()) + len(activity.problems) for activity in self._all())
        return f"{passed_s:5.0f} s: {counts}; {memory} MB, {errors} errors"

    # -- at the end

    def _wait_until_all_is_read(self) -> None:
        committed = set().union(*(each.committed for each in self._transactions))

        def is_read() -> bool:
            return self._stream_reader.has_read(self._stream.sent) and self._transaction_reader.has_read(committed)

        try:
            wait_for(is_read, lambda: f"{self._stream.sent} sent, read up to {self._stream_reader.next_numbers}")
        except Overdue as overdue:
            self._problems.append(f"not everything was read: {overdue}")

    def _judge_history(self, writer: IdempotentWriter, reader: FollowingReader) -> None:
        try:
            check(writer, read_all(self._cluster.bootstrap, HISTORY, PARTITIONS), reader)
        except AssertionError as error:
            self._problems.append(f"history: {error}")

    def _all(self) -> list[Activity]:
        return [*self._writers, *self._readers]

    def _report(self, seconds: float) -> Report:
        committed = set().union(*(each.committed for each in self._transactions))
        in_doubt = set().union(*(each.in_doubt for each in self._transactions))
        problems = [
            *self._problems,
            *(problem for activity in self._all() for problem in activity.problems),
            *self._transaction_reader.judge(committed, in_doubt),
            *(problem for name, samples in self._usage.items() for problem in growth(name, samples)),
            *self._errors(),
            *self._idle(),
            *self._surprises(),
        ]
        rows = [_row(activity) for activity in self._all()]
        return Report(seconds, rows, self._usage, sum(each.known_races for each in self._all()), problems)

    def _errors(self) -> list[str]:
        return [f"{each.name}: {count} times {error}" for each in self._all() for error, count in each.errors.items()]

    def _idle(self) -> list[str]:
        return [f"{each.name}: nothing was done" for each in self._all() if not each.done]

    def _surprises(self) -> list[str]:
        """Lines in the logs of brokers that should not be there."""
        return [
            f"broker {broker_id}: {line}"
            for broker_id in range(1, BROKERS + 1)
            for line in self._cluster.log(broker_id).splitlines()
            if " ERROR " in line or "Traceback" in line
        ]


def _row(activity: Activity) -> Row:
    percentile = activity.latencies.percentile_ms
    done, errors = dict(activity.done), dict(activity.errors)
    return Row(activity.name, done, percentile(50), percentile(99), activity.latencies.max_ms, errors)


def soak(seconds: float, directory: Path, say: Say, *, records_per_s: int = 2000, report_s: float = 30.0) -> Report:
    with local_cluster(directory, BROKERS) as cluster:
        cluster.up(*(part for setting in SETTINGS for part in ("--set", setting)))
        report = Soak(cluster, records_per_s, say).run(seconds, report_s)
        cluster.run("down")
    return report
