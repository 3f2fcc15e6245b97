"""Background tasks of a client: cancelled with it, and failures are raised."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """A task group for a class that is itself a context manager."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In start order, which is the order of cancellation: simulations must be repeatable."""

    async def open(self) -> None:
        await self._group.__aenter__()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def close(self, error: BaseException | None) -> None:
        """Cancel all tasks. `error` is the exception that left the owner's block."""
        for task in list(self._tasks):
            task.cancel()
        # The group must see a cancellation, which may be its own. It would wrap other errors in an ExceptionGroup.
        if isinstance(error, asyncio.CancelledError):
            await self._group.__aexit__(type(error), error, error.__traceback__)
        else:
            await self._group.__aexit__(None, None, None)
