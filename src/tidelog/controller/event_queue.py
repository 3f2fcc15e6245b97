"""Controller event queue: first in, first out, without duplicates (R32)."""

import asyncio

from tidelog.controller.events import Event


class EventQueue:
    """FIFO queue. An event equal to a queued one is not added again, so the queue cannot grow without limit."""

    def __init__(self) -> None:
        self._events: dict[Event, None] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        self._events.setdefault(event)
        self._arrived.set()

    def clear(self) -> list[Event]:
        """Empty the queue and return the dropped events."""
        dropped = list(self._events)
        self._events.clear()
        self._arrived.clear()
        return dropped

    def clear_and_put(self, event: Event) -> list[Event]:
        """Replace all queued events by this one and return the dropped events."""
        dropped = self.clear()
        self.put(event)
        return dropped

    async def next(self) -> Event:
        await self._arrived.wait()
        event = next(iter(self._events))
        del self._events[event]
        if not self._events:
            self._arrived.clear()
        return event
