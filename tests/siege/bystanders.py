"""Normal producers, consumers and readers of metrics, and how long they wait while somebody else attacks."""

import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from typing import NamedTuple, cast

from tests.siege.wire import Asking
from tidelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.protocol.record_batch import split_batches
from tidelog.protocol.records import Record, build_batch, records_of

LATEST = -1
PAUSE_S = 0.01
TIMEOUT_S = 60.0
FETCH_WAIT_MS = 500
SCRAPE_S = 0.5


class Place(NamedTuple):
    """A partition, and the address of the broker that leads it."""

    topic: str
    partition: int
    address: str


class Waits:
    """How long requests took, and what went wrong."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.longest: tuple[float, str] = (0.0, "nobody")
        self.failures: list[str] = []

    def note(self, seconds: float, who: str) -> None:
        self.seconds.append(seconds)
        self.longest = max(self.longest, (seconds, f"{who}, {time.strftime('%H:%M:%S')}"))

    def quantile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("inf")


class Bystanders:
    """Run while the context lasts."""

    def __init__(self, places: Sequence[Place], metrics: Mapping[int, str]) -> None:
        self.produce, self.consume, self.scrape = Waits(), Waits(), Waits()
        self._is_over = threading.Event()
        works: list[Callable[[], None]] = []
        for place in places:
            works += [lambda place=place: self._produce(place), lambda place=place: self._consume(place)]  # type: ignore[misc]
        for address in metrics.values():
            works.append(lambda address=address: self._scrape(address))  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in works]

    def __enter__(self) -> "Bystanders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def waits(self) -> list[float]:
        return self.produce.seconds + self.consume.seconds

    def _run(self, work: Callable[[], None]) -> None:
        while not self._is_over.is_set():
            work()

    def _produce(self, place: Place) -> None:
        with suppress(OSError), Asking(place.address, TIMEOUT_S) as asking:
            while not self._is_over.wait(PAUSE_S):
                began_s = time.monotonic()
                try:
                    response = asking.ask(_one_record(place), 9, ProduceResponse)
                except OSError as error:
                    self.produce.failures.append(f"produce {place.topic}-{place.partition}: {error}")
                    raise
                self.produce.note(time.monotonic() - began_s, f"produce {place}")
                code = response.responses[0].partition_responses[0].error_code
                if code:
                    self.produce.failures.append(f"produce {place.topic}-{place.partition}: error {code}")

    def _consume(self, place: Place) -> None:
        """Counts from when a record was made to when it is here. What earlier attacks left is not read again: that
        takes seconds of this process, which would count as waiting."""
        since_s = time.monotonic()
        with suppress(OSError), Asking(place.address, TIMEOUT_S) as asking:
            offset = _end_offset(place, asking)
            while not self._is_over.is_set():
                try:
                    response = asking.ask(_fetch(place, offset), 12, FetchResponse)
                except OSError as error:
                    self.consume.failures.append(f"fetch {place.topic}-{place.partition}: {error}")
                    raise
                found = response.responses[0].partitions[0]
                if found.error_code:
                    self.consume.failures.append(f"fetch {place.topic}-{place.partition}: error {found.error_code}")
                    return
                now_s = time.monotonic()
                for _, batch in split_batches(cast("bytes", found.records or b"")):
                    for record in records_of(batch):
                        offset = record.offset + 1
                        made_s = float(bytes(record.value or b"0"))
                        if made_s > since_s:
                            self.consume.note(now_s - made_s, f"consume {place}")

    def _scrape(self, address: str) -> None:
        while not self._is_over.wait(SCRAPE_S):
            began_s = time.monotonic()
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
                    page.read()
            except (OSError, HTTPException) as error:
                self.scrape.failures.append(f"metrics of {address}: {error!r}")
            self.scrape.note(time.monotonic() - began_s, f"metrics {address}")


def _one_record(place: Place) -> ProduceRequest:
    value = repr(time.monotonic()).encode()
    batch = build_batch([Record(0, int(time.time() * 1000), None, value)])
    data = PartitionProduceData(index=place.partition, records=memoryview(batch))
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=place.topic, partition_data=[data])]
    )


def _end_offset(place: Place, asking: Asking) -> int:
    wanted = [ListOffsetsTopic(place.topic, [ListOffsetsPartition(place.partition, -1, LATEST)])]
    response = asking.ask(ListOffsetsRequest(replica_id=-1, topics=wanted), 6, ListOffsetsResponse)
    return response.topics[0].partitions[0].offset


def _fetch(place: Place, offset: int) -> FetchRequest:
    wanted = FetchPartition(
        partition=place.partition, fetch_offset=offset, partition_max_bytes=1_000_000, current_leader_epoch=-1
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[FetchTopic(topic=place.topic, partitions=[wanted])],
    )
