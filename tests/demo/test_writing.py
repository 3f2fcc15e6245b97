"""The shop's pace on a machine that is too busy for it."""

import asyncio
from typing import Any

import pytest

from demo import writing
from demo.events import Shop
from demo.writing import Writer


class SilentProducer:
    """Takes records, and acknowledges none."""

    def __init__(self) -> None:
        self.taken = 0

    async def enqueue(self, topic: str, value: bytes, *, key: bytes) -> None:
        self.taken += 1


def test_a_shop_without_acknowledgements_stops_selling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog would keep the event loop busy, so that acknowledgements could not be read."""
    monkeypatch.setattr(writing, "TICK_S", 0)
    monkeypatch.setattr(writing, "MAX_UNACKNOWLEDGED", 500)
    producer: Any = SilentProducer()

    async def main() -> None:
        writer = Writer("nobody:1", "orders", 1, Shop(1), 1_000_000_000)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(writer._write_until_ended(producer, [asyncio.Queue()]))
            for _ in range(100):
                await asyncio.sleep(0)
            writer.request_end()

    asyncio.run(main())
    assert producer.taken == 500
