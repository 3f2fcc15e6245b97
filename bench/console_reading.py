"""Costs of pages of messages in a large topic: `python -m bench.console_reading [MILLIONS OF RECORDS]`.

A topic with one partition is filled; then the console is asked for pages of 100 records at several places, and for the
bars of volume. Printed are the time of each answer, and what was fetched for it.
"""

import asyncio
import os
import sys
import time
from functools import partial

from bench import wire
from tests.console.reading import BEGAN_MS, IN_BATCH, STEP_MS, cost_of, fill
from tests.console.running_console import RunningConsole, running_console
from tidelog.console.messages import Query, read_page, volume
from tidelog.testing import Cluster

TOPIC = "large"
LIMIT = 100
REPEATS = 5


def main(records: int) -> None:
    with Cluster(settings={"num.partitions": 1}) as kafka:
        began_s = time.monotonic()
        with wire.Connection(int(kafka.bootstrap_servers.rpartition(":")[2])) as connection:
            connection.ask(wire.create_topic_frame(TOPIC, 1, {}))
            fill(connection, TOPIC, records // IN_BATCH)
        print(f"{records:,} records were written in {time.monotonic() - began_s:.0f} s")
        until_ms = BEGAN_MS + records // IN_BATCH * STEP_MS
        starts = {
            "earliest": "earliest",
            "latest": "latest",
            "offset in the middle": str(records // 2),
            "time in the middle": f"@{(BEGAN_MS + until_ms) // 2}",
        }
        with running_console(kafka.bootstrap_servers) as console:
            for name, start in starts.items():
                seconds = _shortest_s(console, f"messages?start={start}&limit={LIMIT}")
                query = Query(TOPIC, (), start, LIMIT)
                _, cost = asyncio.run(cost_of(kafka, partial(read_page, query=query)))
                fetched = f"{cost.record_bytes / 1024:.0f} KB in {cost.requests['Fetch']} fetches"
                print(f"{name}: {seconds * 1000:.0f} ms, {fetched}")
            seconds = _shortest_s(console, f"volume?since={BEGAN_MS}&until={until_ms}")
            _, cost = asyncio.run(cost_of(kafka, partial(volume, topic=TOPIC, from_ms=BEGAN_MS, to_ms=until_ms)))
            print(f"volume: {seconds * 1000:.0f} ms, {cost.requests['Fetch']} fetches")
    print(f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())}")


def _shortest_s(console: RunningConsole, path: str) -> float:
    found = []
    for _ in range(REPEATS):
        began_s = time.monotonic()
        console.read(f"/api/topics/{TOPIC}/{path}")
        found.append(time.monotonic() - began_s)
    return min(found)


if __name__ == "__main__":
    main(int(float(sys.argv[1] if len(sys.argv) > 1 else "10") * 1_000_000))
