"""Writes numbered records: mostly a few, now and then as many as keep all tasks busy.

It waits for a reader that is far behind: on a busy machine the reader would never catch up.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable

KEYS = 50
TICK_S = 0.1
FEW = 100
MANY = 8_000
MANY_CHANCE = 0.015
FLUSH_LIMIT_S = 60.0
MOST_AHEAD = 50_000


class NumberingProducer:
    def __init__(self, bootstrap: str, topic: str, seed: int, count_read: Callable[[], int]) -> None:
        """`count_read`: the records that the slowest reader has read."""
        from confluent_kafka import Producer

        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
        )
        self._topic = topic
        self._chance = random.Random(seed)
        self._count_read = count_read
        self._next = Counter[str]()
        self._failures: list[str] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """How many records of each key the broker has acknowledged: all that were sent."""
        self._is_stopped.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_LIMIT_S) == 0, "the broker cannot hold all records"
        assert not self._failures, self._failures[0]
        return dict(self._next)

    def abandon(self) -> None:
        """Ends a producer whose trial has failed: its files go away."""
        self._is_stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopped.wait(TICK_S):
            if self._next.total() - self._count_read() > MOST_AHEAD:
                continue
            for _ in range(MANY if self._chance.random() < MANY_CHANCE else FEW):
                self._send(f"key-{self._chance.randrange(KEYS):02}")

    def _send(self, key: str) -> None:
        number = self._next[key]
        value = json.dumps({"key": key, "number": number, "number_s": number})
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._on_delivery)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._next[key] += 1
        self._producer.poll(0)

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))
