"""The roads between brokers, and from a broker to ZooKeeper: loopback proxies that can be cut and mended."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

HOST = "127.0.0.1"
STORE = 0
"""As the end of a road; brokers are numbered from 1."""
CHUNK_BYTES = 65536


class Roads:
    """While a road is cut what is sent on it waits, as in TCP, and may arrive late, when it is mended."""

    def __init__(self, broker_pids: Callable[[], dict[int, int]]) -> None:
        self._broker_pids = broker_pids
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="roads", daemon=True)
        self._thread.start()
        self._open: dict[frozenset[int], asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def to_broker(self, broker_id: int, port: int) -> int:
        """The port by which the others reach it; who comes is found out by the process that connects."""
        return self._run(self._listen(port, lambda peer, own: self._pair_of_process(peer, own, broker_id)))

    def to_store(self, broker_id: int, port: int) -> int:
        """The port by which this broker alone reaches the store."""
        return self._run(self._listen(port, lambda *_: frozenset((broker_id, STORE))))

    def cut(self, one: int, *others: int) -> None:
        self._run(self._set({frozenset((one, other)) for other in others}, is_open=False))

    def mend(self) -> None:
        self._run(self._set(set(self._open), is_open=True))

    def close(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _set(self, pairs: set[frozenset[int]], *, is_open: bool) -> None:
        for pair in pairs:
            gate = self._gate(pair)
            if is_open:
                gate.set()
            else:
                gate.clear()

    def _gate(self, pair: frozenset[int]) -> asyncio.Event:
        if pair not in self._open:
            self._open[pair] = asyncio.Event()
            self._open[pair].set()
        return self._open[pair]

    async def _listen(self, target_port: int, pair_of: Callable[[int, int], frozenset[int] | None]) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connection = asyncio.current_task()
            assert connection is not None
            self._connections.add(connection)
            connection.add_done_callback(self._connections.discard)
            pair = pair_of(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
            try:
                if pair is not None:
                    await self._carry(reader, writer, target_port, self._gate(pair))
            except asyncio.CancelledError:
                writer.transport.abort()  # what was not sent yet would keep its socket open
            finally:
                writer.close()

        server = await asyncio.start_server(accept, HOST, 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target_port: int, gate: asyncio.Event
    ) -> None:
        await gate.wait()
        with suppress(OSError):
            target_reader, target_writer = await asyncio.open_connection(HOST, target_port)
            try:
                there = asyncio.create_task(_pump(reader, target_writer, gate))
                back = asyncio.create_task(_pump(target_reader, writer, gate))
                try:
                    await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    there.cancel()
                    back.cancel()
                    await asyncio.gather(there, back, return_exceptions=True)
            except asyncio.CancelledError:
                target_writer.transport.abort()
                raise
            finally:
                target_writer.close()

    def _pair_of_process(self, peer_port: int, own_port: int, broker_id: int) -> frozenset[int] | None:
        """None if the process is gone already."""
        wanted = f"socket:[{_inode(peer_port, own_port)}]"
        for source, pid in self._broker_pids().items():
            with suppress(OSError):
                for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        if os.readlink(descriptor) == wanted:
                            return frozenset((source, broker_id))
        return None

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        await asyncio.sleep(0)  # a connection that was accepted just now begins, else nobody would close it
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with suppress(OSError):
        while data := await source.read(CHUNK_BYTES):
            await gate.wait()
            target.write(data)
            await target.drain()


def _inode(local_port: int, remote_port: int) -> str:
    """Of the socket whose ends have these ports, from the kernel's table of connections."""
    wanted = [f"0100007F:{local_port:04X}", f"0100007F:{remote_port:04X}"]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            return fields[9]
    return ""
