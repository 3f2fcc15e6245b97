"""The event loop of a broker process: sockets with callbacks beside the files that asyncio watches itself."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

from tidelog.runtime.broker_loop import BrokerLoop, call_at_end_of_turn


def run(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        runner.run(asyncio.wait_for(scenario, 60))


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


class Calls:
    """Callbacks that note their name, and can be awaited."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._changed = asyncio.Event()

    def of(self, name: str, then: Callable[[], object] = lambda: None) -> Callable[[], None]:
        def called() -> None:
            self.names.append(name)
            self._changed.set()
            then()

        return called

    async def until(self, condition: Callable[[list[str]], bool]) -> None:
        while not condition(self.names):
            self._changed.clear()
            await self._changed.wait()


def test_a_readable_socket_is_reported_until_it_is_read_or_no_longer_watched() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (ours, theirs):
            loop.add_reader(ours.fileno(), calls.of("read"))
            theirs.send(b"x")
            await calls.until(lambda names: len(names) >= 3)
            assert loop.remove_reader(ours.fileno())
            assert not loop.remove_reader(ours.fileno())
            before = len(calls.names)
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(calls.names) == before

    run(scenario())


def test_a_socket_may_be_closed_before_it_is_no_longer_watched() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (ours, theirs):
            fd = ours.fileno()
            loop.add_reader(fd, calls.of("read"))
            ours.close()
            assert loop.remove_reader(fd)
            loop.add_reader(theirs.fileno(), calls.of("closed", lambda: loop.remove_reader(theirs.fileno())))
            await calls.until(bool)
            assert calls.names == ["closed"]

    run(scenario())


def test_reader_and_writer_of_a_socket_come_and_go_independently() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (ours, theirs):
            fd = ours.fileno()
            loop.add_writer(fd, calls.of("write", lambda: loop.remove_writer(fd)))
            loop.add_reader(fd, calls.of("read", lambda: ours.recv(1)))
            await calls.until(lambda names: names == ["write"])
            theirs.send(b"x")
            await calls.until(lambda names: names == ["write", "read"])
            loop.add_writer(fd, calls.of("again", lambda: loop.remove_writer(fd)))
            await calls.until(lambda names: names == ["write", "read", "again"])
            theirs.send(b"x")
            await calls.until(lambda names: names == ["write", "read", "again", "read"])
            loop.remove_reader(fd)

    run(scenario())


def test_a_second_callback_replaces_the_first_one_and_gets_its_arguments() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (ours, theirs):
            loop.add_reader(ours.fileno(), calls.of("first"))
            loop.add_reader(ours.fileno(), lambda name: calls.of(name, lambda: ours.recv(1))(), "second")
            theirs.send(b"x")
            await calls.until(lambda names: names == ["second"])
            loop.remove_reader(ours.fileno())

    run(scenario())


def test_a_socket_that_another_callback_of_the_turn_gave_up_is_not_called() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (first, to_first), socket_pair() as (second, to_second):
            both = (first.fileno(), second.fileno())

            def give_up_both() -> None:
                for fd in both:
                    loop.remove_reader(fd)

            for fd in both:
                loop.add_reader(fd, calls.of("read", give_up_both))
            to_first.send(b"x")
            to_second.send(b"x")
            await calls.until(bool)
            await asyncio.sleep(0)
            assert calls.names == ["read"]

    run(scenario())


def test_a_failed_callback_is_reported_and_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        failed = calls.of("failed")
        loop.set_exception_handler(lambda _, context: isinstance(context["exception"], ZeroDivisionError) and failed())
        with socket_pair() as (first, to_first), socket_pair() as (second, to_second):

            def fail() -> None:
                loop.remove_reader(first.fileno())
                raise ZeroDivisionError

            loop.add_reader(first.fileno(), fail)
            loop.add_reader(second.fileno(), calls.of("read", lambda: second.recv(1)))
            to_first.send(b"x")
            to_second.send(b"x")
            await calls.until(lambda names: sorted(names) == ["failed", "read"])
            loop.remove_reader(second.fileno())

    run(scenario())


def test_callbacks_that_were_queued_before_run_before_those_of_sockets() -> None:
    """Work that a turn has left over goes on before new requests are read."""

    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (ours, theirs):
            loop.add_reader(ours.fileno(), calls.of("socket", lambda: loop.remove_reader(ours.fileno())))
            theirs.send(b"x")
            loop.call_soon(calls.of("queued"))
            await calls.until(lambda names: len(names) == 2)
            assert calls.names == ["queued", "socket"]

    run(scenario())


def test_a_descriptor_can_be_watched_after_asyncio_has_connected_it() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with closing(socket.create_server(("127.0.0.1", 0))) as listening, closing(socket.socket()) as ours:
            ours.setblocking(False)
            await loop.sock_connect(ours, listening.getsockname())
            accepted, _ = listening.accept()
            with closing(accepted):
                loop.add_reader(ours.fileno(), calls.of("read", lambda: ours.recv(1)))
                accepted.send(b"x")
                await calls.until(bool)
                loop.remove_reader(ours.fileno())

    run(scenario())


def test_streams_of_asyncio_signals_and_processes_work_as_ever() -> None:
    async def scenario() -> None:
        loop, signalled = asyncio.get_running_loop(), asyncio.Event()

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.read() == b"hello\n"
        writer.close()
        server.close()
        loop.add_signal_handler(signal.SIGUSR1, signalled.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await signalled.wait()
        loop.remove_signal_handler(signal.SIGUSR1)
        process = await asyncio.create_subprocess_exec("true")
        assert await process.wait() == 0

    run(scenario())


def test_what_is_called_at_the_end_of_a_turn_runs_after_all_ready_sockets_and_before_what_is_called_soon() -> None:
    async def scenario() -> None:
        loop, calls = asyncio.get_running_loop(), Calls()
        with socket_pair() as (ours, theirs), socket_pair() as (others, peers):

            def first() -> None:
                loop.call_soon(calls.of("soon"))
                call_at_end_of_turn(calls.of("end", lambda: call_at_end_of_turn(calls.of("end of the end"))))

            for each in (ours, others):
                loop.add_reader(each.fileno(), calls.of("read", lambda: None if "end" in calls.names else first()))
            theirs.send(b"x")
            peers.send(b"x")
            await calls.until(lambda names: "soon" in names)
            assert calls.names[:7] == ["read", "read", "end", "end", "end of the end", "end of the end", "soon"]

    run(scenario())


def test_what_is_called_at_the_end_of_a_turn_runs_soon_if_no_socket_is_served() -> None:
    async def scenario() -> None:
        calls = Calls()
        call_at_end_of_turn(calls.of("end"))
        assert calls.names == []
        await calls.until(bool)

    run(scenario())


def test_a_failure_at_the_end_of_a_turn_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        loop, calls, failures = asyncio.get_running_loop(), Calls(), list[Any]()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        with socket_pair() as (ours, theirs):

            def read() -> None:
                ours.recv(1)
                call_at_end_of_turn(lambda: 1 // 0)
                call_at_end_of_turn(calls.of("end"))

            loop.add_reader(ours.fileno(), read)
            theirs.send(b"x")
            await calls.until(bool)
            assert isinstance(failures[0], ZeroDivisionError)

    run(scenario())
