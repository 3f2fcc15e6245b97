"""The background tasks of a client: they end with it, and none fails unseen."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """A task group for a class that is itself entered and left; its tasks run until then."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order of their start, in which they are cancelled: the same in every run of a simulation."""

    async def open(self) -> None:
        await self._group.__aenter__()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def close(self, error: BaseException | None) -> None:
        """Cancels all. `error` is what the owner is left by."""
        for task in list(self._tasks):
            task.cancel()
        # The group must know of a cancellation, which may be its own; other errors it would wrap.
        if isinstance(error, asyncio.CancelledError):
            await self._group.__aexit__(type(error), error, error.__traceback__)
        else:
            await self._group.__aexit__(None, None, None)
