"""Event loop of a broker process: all ready sockets of a turn are served by one callback.

asyncio looks up a key, and queues and runs a handle, for each ready socket of each turn, and makes several objects to
wait for room in one. Here `add_reader` and `add_writer` cost one system call, and a ready socket one dictionary lookup.
Sockets are served in the order in which the kernel reports them, after the callbacks that were queued before. Whatever
asyncio itself watches (its wake-up pipe, connections that are being opened) is served as ever.
"""

import asyncio
import contextlib
import math
import select
import selectors
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

Callback = Callable[[], object]

MAX_EVENTS = 1024
"""Sockets reported at once. The kernel reports the others in the next turns."""

READ, WRITE = select.EPOLLIN, select.EPOLLOUT


class SocketSelector(selectors.BaseSelector):
    """Watches two kinds of files: those of asyncio, with keys, and sockets, with callbacks.

    To asyncio all sockets are one file, the selector itself, which is readable if `serve` has something to do.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._own_fd = self._epoll.fileno()
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        self._reported: list[tuple[int, int]] = []
        self.is_serving = False
        self.after_serving: list[Callback] = []
        """Called when all ready sockets are served, in the same turn."""

    def fileno(self) -> int:
        return self._own_fd

    # ---- sockets

    def set_reader(self, fd: int, callback: Callback | None) -> bool:
        """Set or remove the callback of a readable socket. Returns whether it had one."""
        return self._set(self._readers, self._writers, fd, READ, callback)

    def set_writer(self, fd: int, callback: Callback | None) -> bool:
        """The same for a socket that can be written to."""
        return self._set(self._writers, self._readers, fd, WRITE, callback)

    def _set(
        self, own: dict[int, Callback], others: dict[int, Callback], fd: int, event: int, callback: Callback | None
    ) -> bool:
        had, is_other_watched = fd in own, fd in others
        if had == (callback is None):
            if is_other_watched:
                self._epoll.modify(fd, (READ | WRITE) ^ (event if had else 0))
            elif had:
                self._forget(fd)
            else:
                self._epoll.register(fd, event)
        if callback is not None:
            own[fd] = callback
        elif had:
            del own[fd]
        return had

    def serve(self, on_error: Callable[[Exception], object]) -> None:
        """Call back for each socket that `select` found. A failure must not stop the others."""
        readers, writers = self._readers, self._writers
        reported, self._reported = self._reported, []
        self.is_serving = True
        for fd, events in reported:
            try:
                if events != WRITE and fd in readers:
                    readers[fd]()
                if events != READ and fd in writers:
                    writers[fd]()
            except Exception as error:  # noqa: BLE001 - reported like a failed callback of the loop
                on_error(error)
        for callback in self.after_serving:  # which may add others
            try:
                callback()
            except Exception as error:  # noqa: BLE001
                on_error(error)
        self.after_serving.clear()
        self.is_serving = False

    # ---- BaseSelector

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} is registered already")
        if fd != self._own_fd:
            self._epoll.register(fd, _mask(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        key = self._keys.pop(fd)
        self._forget(fd)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = _descriptor(fileobj)
        key = self._keys[fd]
        if events != key.events:
            self._epoll.modify(fd, _mask(events))
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        return key

    def _forget(self, fd: int) -> None:
        with contextlib.suppress(OSError):  # a file that was closed is forgotten already
            self._epoll.unregister(fd)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            wait = -1.0
        elif timeout <= 0:
            wait = 0.0
        else:
            wait = math.ceil(timeout * 1e3) * 1e-3  # epoll counts milliseconds: never wake up too early
        try:
            reported = self._epoll.poll(wait, MAX_EVENTS)
        except InterruptedError:
            return []
        keys = self._keys
        found = [(keys[fd], _events(mask) & keys[fd].events) for fd, mask in reported if fd in keys]
        if len(found) < len(reported):
            self._reported = reported
            found.append((keys[self._own_fd], selectors.EVENT_READ))
        return found

    def close(self) -> None:
        self._epoll.close()
        self._keys.clear()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[_descriptor(fileobj)]


def _descriptor(file: Any) -> int:
    descriptor: int = file if isinstance(file, int) else file.fileno()
    return descriptor


def _mask(events: int) -> int:
    return (READ if events & selectors.EVENT_READ else 0) | (WRITE if events & selectors.EVENT_WRITE else 0)


def _events(mask: int) -> int:
    return (selectors.EVENT_WRITE if mask & ~READ else 0) | (selectors.EVENT_READ if mask & ~WRITE else 0)


class BrokerLoop(asyncio.SelectorEventLoop):
    """asyncio's loop over a `SocketSelector`. Only the public methods that watch files differ."""

    time = staticmethod(time.monotonic)  # as asyncio's, without a function in Python around it

    def __init__(self) -> None:
        self._sockets = SocketSelector()
        super().__init__(self._sockets)
        super().add_reader(self._sockets, self._sockets.serve, self._on_error)

    def _on_error(self, error: Exception) -> None:
        self.call_exception_handler({"message": "the callback of a socket failed", "exception": error})

    def call_at_end_of_turn(self, callback: Callback) -> None:
        """Call back when all ready sockets of this turn are served: before the next poll, unlike `call_soon`."""
        if self._sockets.is_serving:
            self._sockets.after_serving.append(callback)
        else:
            self.call_soon(callback)

    def add_reader(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._sockets.set_reader(fd, partial(callback, *args) if args else callback)

    def remove_reader(self, fd: Any) -> bool:
        # asyncio removes with this what it has added by a method of its own.
        return self._sockets.set_reader(fd, None) or super().remove_reader(fd)

    def add_writer(self, fd: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._sockets.set_writer(fd, partial(callback, *args) if args else callback)

    def remove_writer(self, fd: Any) -> bool:
        return self._sockets.set_writer(fd, None) or super().remove_writer(fd)


def call_at_end_of_turn(callback: Callback) -> None:
    """In the running loop; in other loops than a broker's, at the start of the next turn."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, BrokerLoop):
        loop.call_at_end_of_turn(callback)
    else:
        loop.call_soon(callback)
