"""Costs of one page of messages, which do not depend on the size of the topic."""

import asyncio
from collections.abc import Callable, Generator
from functools import partial

import pytest

from bench import wire
from tests.console.reading import BEGAN_MS, IN_BATCH, STEP_MS, cost_of, fill
from tidelog.console.messages import FETCH_BYTES, Page, Query, read_page, volume
from tidelog.testing import Cluster

SIZES = {"small": 10_000, "large": 1_000_000}
LIMIT = 100


@pytest.fixture(scope="module")
def kafka() -> Generator[Cluster]:
    with Cluster(settings={"num.partitions": 1, "log.segment.bytes": 1024 * 1024}) as cluster:
        with wire.Connection(int(cluster.bootstrap_servers.rpartition(":")[2])) as connection:
            for topic, size in SIZES.items():
                connection.ask(wire.create_topic_frame(topic, 1, {}))
                fill(connection, topic, size // IN_BATCH)
        yield cluster


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", lambda size: 0),
        ("latest", lambda size: size - LIMIT),
        ("middle", lambda size: size // 2),
        ("time", lambda size: size // 2),
    ],
)
def test_a_page_reads_what_it_shows(kafka: Cluster, start: str, first: Callable[[int], int]) -> None:
    found = {}
    for topic, size in SIZES.items():
        middle_ms = BEGAN_MS + size // 2 // IN_BATCH * STEP_MS
        begin = {"middle": str(size // 2), "time": f"@{middle_ms}"}.get(start, start)
        query = Query(topic, (), begin, LIMIT)
        page, cost = asyncio.run(cost_of(kafka, partial(read_page, query=query)))
        assert isinstance(page, Page)
        assert [each["offset"] for each in page.records] == list(range(first(size), first(size) + LIMIT))
        assert page.scanned == LIMIT
        found[topic] = cost
    assert found["large"].requests == found["small"].requests
    assert found["large"].requests["Fetch"] <= 2  # one is shown, another was asked for ahead
    assert found["large"].record_bytes <= 2 * FETCH_BYTES


def test_the_volume_is_counted_without_reading_a_record(kafka: Cluster) -> None:
    until_ms = BEGAN_MS + SIZES["large"] // IN_BATCH * STEP_MS
    found = {}
    for topic, size in SIZES.items():
        bars, cost = asyncio.run(cost_of(kafka, partial(volume, topic=topic, from_ms=BEGAN_MS, to_ms=until_ms)))
        assert sum(records for _, records in bars) == size
        assert cost.requests["Fetch"] == 0
        found[topic] = cost.requests
    assert found["large"] == found["small"]
