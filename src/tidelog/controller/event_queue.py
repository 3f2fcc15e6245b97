"""The controller's one queue: events wait here, and are taken one at a time (R32)."""

import asyncio

from tidelog.controller.events import Event


class EventQueue:
    """In order of arrival. An event that waits already is not put twice, so the queue cannot grow without end."""

    def __init__(self) -> None:
        self._waiting: dict[Event, None] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Event) -> None:
        self._waiting.setdefault(event)
        self._arrived.set()

    def clear(self) -> list[Event]:
        """What will not happen any more."""
        dropped = list(self._waiting)
        self._waiting.clear()
        self._arrived.clear()
        return dropped

    def clear_and_put(self, event: Event) -> list[Event]:
        """This event is the next; what waited before it is dropped."""
        dropped = self.clear()
        self.put(event)
        return dropped

    async def next(self) -> Event:
        await self._arrived.wait()
        event = next(iter(self._waiting))
        del self._waiting[event]
        if not self._waiting:
            self._arrived.clear()
        return event
