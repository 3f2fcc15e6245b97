"""Fork server: one process imports what Python processes of Spark need, and becomes each of them by forking.

    python -m tidelog.spark.accelerators.fork_server SOCKET DESCRIPTOR

It ends when its standard input ends, that is, with the driver. `fork_client.py` is the other side. The server has one
thread, else it does not serve: a fork copies locks, but not the threads that hold them.
"""

import gc
import importlib
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tidelog.spark.accelerators.fork_client import LENGTH_BYTES, NUMBER_BYTES

MODULES = (
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "tidelog.spark.data_source",
    "tidelog.spark.options.query",
    "tidelog.spark.sink.writer",
    "tidelog.spark.source.batch_reader",
    "tidelog.spark.source.failed_stream_reader",
    "tidelog.spark.source.stream_reader",
    "tidelog.spark.source.unlimited_reader",
)
"""Other versions of PySpark lack some of them."""
READ_LIMIT_S = 10.0
STANDARD_FILES = 3


class Request(NamedTuple):
    directory: bytes
    arguments: list[str]
    """As for Python: `-m`, a module and what the module gets."""
    environment: dict[bytes, bytes]
    files: list[int]
    """Standard input, output and error."""


def receive(connection: socket.socket) -> Request:
    """Raises OSError or ValueError if it does not come whole."""
    connection.settimeout(READ_LIMIT_S)
    head, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, STANDARD_FILES)
    try:
        if len(head) != LENGTH_BYTES or len(files) != STANDARD_FILES:
            raise ValueError("not a request")
        body = bytearray()
        size = int.from_bytes(head, "big")
        while len(body) < size:
            part = connection.recv(size - len(body))
            if not part:
                raise ValueError("half a request")
            body += part
        return parse(bytes(body), files)
    except (OSError, ValueError):
        close_all(files)
        raise


def parse(body: bytes, files: list[int]) -> Request:
    directory, *texts = body.removesuffix(b"\0").split(b"\0")
    end = texts.index(b"")
    environment = dict(text.split(b"=", 1) for text in texts[end + 1 :])
    return Request(directory, [os.fsdecode(text) for text in texts[:end]], environment, files)


def close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)


class ForkServer:
    def __init__(self, listener: socket.socket, parent: int) -> None:
        """`parent`: a file that ends with the driver."""
        self._listener = listener
        self._parent = parent
        self._children: dict[int, socket.socket] = {}
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)

    def serve(self) -> Request | None:
        """Returns once for each request, in a process of its own; at last None, in the server."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        while True:
            ready = self._ready()
            if self._parent in ready:
                return None
            if self._woken in ready:
                os.read(self._woken, 1 << 10)
                self._reap()
            for pid, connection in list(self._children.items()):
                if connection.fileno() in ready:  # its client has been killed
                    self._kill(pid)
            if self._listener.fileno() in ready and (request := self._accept()) is not None:
                return request

    def _ready(self) -> set[int]:
        poll = select.poll()
        connections = (connection.fileno() for connection in self._children.values())
        for file in (self._parent, self._woken, self._listener.fileno(), *connections):
            poll.register(file, select.POLLIN)
        return {file for file, _event in poll.poll()}

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            self._send(self._children.pop(pid), code if code >= 0 else 128 - code, is_last=True)

    def _kill(self, pid: int) -> None:
        self._children.pop(pid).close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def _send(self, connection: socket.socket, number: int, *, is_last: bool) -> None:
        with suppress(OSError):  # a client that has gone needs no answer
            connection.sendall(number.to_bytes(NUMBER_BYTES, "big", signed=True))
        if is_last:
            connection.close()

    def _accept(self) -> Request | None:
        """The request in the process that carries it out, None in the server."""
        connection, _ = self._listener.accept()
        try:
            request = receive(connection)
        except (OSError, ValueError):
            connection.close()
            return None
        try:
            pid = os.fork()
        except OSError:  # the client then starts Python itself
            close_all(request.files)
            connection.close()
            return None
        if pid == 0:
            connection.close()
            self._forget()
            return request
        close_all(request.files)
        self._children[pid] = connection
        self._send(connection, pid, is_last=False)
        return None

    def _forget(self) -> None:
        """In a forked process: nothing is left of the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for connection in (self._listener, *self._children.values()):
            connection.close()
        for file in (self._woken, self._waker):
            os.close(file)


def become(request: Request) -> Callable[[], None]:
    """Makes this process the one that was asked for; returns what it has to do."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
    close_all(request.files)
    os.chdir(request.directory)
    os.environb.clear()
    os.environb.update(request.environment)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [os.getcwd(), *(path for path in paths if path and path not in sys.path)]
    _option, module, *rest = request.arguments
    sys.argv = [module, *rest]
    with suppress(OSError):  # shown by `ps -e`
        Path("/proc/self/comm").write_text(module.rpartition(".")[2][:15])
    return lambda: run_module(module)


def run_module(module: str) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def load() -> None:
    """All modules, and the kernels that are loaded at their first use."""
    for module in MODULES:
        with suppress(ImportError):
            importlib.import_module(module)
    from tidelog.spark.accelerators.driver_reads import decode_a_record
    from tidelog.spark.records.decoding import COLUMNS

    decode_a_record(COLUMNS)


def reseed_numpy() -> None:
    """Python draws new random numbers after a fork by itself, numpy goes on with the old ones."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def main(path: str, listening: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    request = None
    with socket.socket(fileno=listening) as listener:
        load()
        if count_threads() == 1:
            gc.collect()
            gc.freeze()
            os.register_at_fork(after_in_child=reseed_numpy)
            request = ForkServer(listener, sys.stdin.fileno()).serve()
    if request is None:
        shutil.rmtree(Path(path).parent, ignore_errors=True)
    else:
        become(request)()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
