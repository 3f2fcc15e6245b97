"""Work of a soak in a thread of its own: what it did, what went wrong, and how long it took."""

import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from threading import Event, Thread

from confluent_kafka import KafkaError, KafkaException

MAX_PROBLEMS = 20
REST_AFTER_ERROR_S = 0.5
KNOWN_RACE = KafkaError.INVALID_TXN_STATE
"""Of librdkafka, when it aborts a transaction right after a commit: on Apache Kafka it shows as well, more often."""


class Latencies:
    """Counts by tenths of a millisecond: a soak of hours takes no more memory than one of minutes."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self._counts[int(seconds * 10_000)] += 1

    def percentile_ms(self, percent: float) -> float:
        """Not more than this many percent are above it; 0 if there were none at all."""
        left = self._counts.total() * percent / 100
        for tenths, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return tenths / 10
        return 0.0

    @property
    def max_ms(self) -> float:
        return max(self._counts, default=0) / 10


class Activity(ABC):
    """Steps, one after the other, until it has to end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.done: Counter[str] = Counter()
        """How many of what."""
        self.errors: Counter[str] = Counter()
        """Errors that clients got though nothing was broken."""
        self.known_races = 0
        self.problems: list[str] = []
        """What must never be."""
        self.latencies = Latencies()
        self._ended = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def step(self) -> None: ...

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """In the same thread, after the last step."""

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._guarded(self.step)
        self._guarded(self.close)

    def end(self) -> None:
        self._ended.set()

    @property
    def is_ending(self) -> bool:
        return self._ended.is_set()

    def rest(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except KafkaException as exception:
            self.note_error(exception.args[0])
            time.sleep(REST_AFTER_ERROR_S)
        except Exception:  # noqa: BLE001 - whatever it is, the verdict is bad
            self.note_problem(traceback.format_exc())
            time.sleep(REST_AFTER_ERROR_S)

    def note_error(self, error: KafkaError) -> None:
        if error.code() == KNOWN_RACE:
            self.known_races += 1
        else:
            self.errors[error.name()] += 1

    def note_problem(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{self.name}: {problem}")
