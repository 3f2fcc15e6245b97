"""A talk with a broker in raw requests, kept in a form in which the answers of two brokers can be compared."""

import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.header import read_response_header, request_header
from tidelog.protocol.structs import Request, Response, Struct

TIMEOUT_S = 45.0
A_MOMENT_S = 0.2
CLOSED = "the broker closes the connection"
WAITING = "the broker does not answer yet"

# Nothing that two brokers have to have in common: words, addresses and times.
WORDS = frozenset({"error_message", "batch_index_error_message"})
TIMES = frozenset({"throttle_time_ms", "transaction_start_time_ms", "last_timestamp", "log_append_time_ms"})
LEFT_OUT = WORDS | TIMES | {"host", "port"}
IN_ANY_ORDER = frozenset(
    {
        "groups",
        "members",
        "partitions",
        "results",
        "results_by_partition",
        "topic_partitions",
        "topic_results",
        "topics",
    }
)

EPOCHS_OF_GROUPS = frozenset({"member_epoch", "group_epoch", "assignment_epoch", "generation_id"})

Plain = dict[str, Any]
R = TypeVar("R", bound=Response)


class ConnectionClosed(Exception):
    """By the broker, instead of an answer."""


class Line:
    """One connection; requests may be sent ahead of the answers to those before."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        host, port = bootstrap.split(":")
        self._address = (host, int(port))
        self._client_id = client_id
        self._socket = socket.create_connection(self._address)
        self._sent: list[tuple[int, int]] = []
        self._count = 0

    def send(self, request: Request, version: int) -> None:
        key = type(request).__api_key__
        self.send_bytes(key, version, encode(request, version))

    def send_bytes(self, key: int, version: int, body: bytes) -> None:
        self._count += 1
        frame = request_header(key, version, self._count, self._client_id) + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        self._sent.append((key, version))

    def receive(self) -> Response:
        key, version = self._sent.pop(0)
        self._socket.settimeout(TIMEOUT_S)
        try:
            (length,) = struct.unpack(">i", self._exactly(4))
            frame = memoryview(self._exactly(length))
        except (ConnectionClosed, ConnectionResetError):
            self._open_again()
            raise ConnectionClosed from None
        _, position = read_response_header(frame, key, version)
        return decode(API_KEYS[key].response, version, frame[position:])

    def _open_again(self) -> None:
        self._socket.close()
        self._socket = socket.create_connection(self._address)
        self._sent.clear()

    def _exactly(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            chunk = self._socket.recv(count - len(taken))
            if not chunk:
                raise ConnectionClosed
            taken += chunk
        return taken

    def has_answer(self) -> bool:
        self._socket.settimeout(A_MOMENT_S)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()


class Conversation:
    """What one broker was asked and answered, with names instead of the ids that it has drawn."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._lines: list[Line] = []
        self._names: dict[Any, str] = {}
        self.heard: dict[str, tuple[Any, int]] = {}
        self.first_epoch = 1
        """Which one new consumer groups begin with: shown as 1."""
        self.main = self.line("client")

    def line(self, client_id: str) -> Line:
        line = Line(self._bootstrap, client_id)
        self._lines.append(line)
        return line

    def close(self) -> None:
        for line in self._lines:
            line.close()

    def name(self, value: Any, name: str) -> None:
        """From now on `value` is shown by this name: an id that every broker draws itself."""
        self._names[value] = f"<{name}>"

    def fresh(self, name: str) -> str:
        """A name that nobody has used, shown as `name`."""
        drawn = f"{name}-{time.time_ns():x}"
        self.name(drawn, name)
        return drawn

    def ask(self, what: str, request: Request, version: int, line: Line | None = None) -> Any:
        """The answer, which is noted; None where the broker closed the connection."""
        line = line or self.main
        line.send(request, version)
        return self.hear(what, line)

    def hear(self, what: str, line: Line) -> Any:
        """The answer to the oldest request of that connection that has none yet."""
        try:
            response = line.receive()
        except ConnectionClosed:
            self.note(what, CLOSED)
            return None
        self.note(what, response)
        return response

    def waits(self, what: str, line: Line) -> None:
        """There is no answer yet."""
        self.note(what, "an answer" if line.has_answer() else WAITING)

    def ask_quietly(self, request: Request, version: int, kind: type[R], line: Line | None = None) -> R:
        """For what only prepares a question."""
        line = line or self.main
        line.send(request, version)
        response = line.receive()
        assert isinstance(response, kind)
        return response

    def note(self, what: str, found: Any) -> None:
        assert what not in self.heard, f"asked twice: {what}"
        # Names may be given only after the answer came.
        self.heard[what] = (found, self.first_epoch)

    def transcript(self) -> dict[str, Any]:
        transcript = {}
        for what, (found, first_epoch) in self.heard.items():
            self.first_epoch = first_epoch
            transcript[what] = self._plain(found)
        return transcript

    def _plain(self, value: Any) -> Any:
        match value:
            case Struct():
                return self._plain_fields(value)
            case list() | tuple():
                return [self._plain(each) for each in value]
            case str():
                return self._with_names(value)
            case memoryview():
                return self._plain(bytes(value))
            case bytes():
                return self._with_names_in_bytes(value)
            case _:
                return value

    def _plain_fields(self, value: Struct) -> Plain:
        found: Plain = {}
        for field in value.__fields__:
            each = getattr(value, field.name)
            if field.name in EPOCHS_OF_GROUPS and each > 0:
                found[field.name] = each - self.first_epoch + 1
            elif field.name == "producer_id":
                found[field.name] = self._producer(each)
            elif field.name in IN_ANY_ORDER:
                found[field.name] = sorted(self._plain(each), key=repr)
            elif field.name not in LEFT_OUT:
                found[field.name] = self._plain(each)
        return found

    def _with_names(self, text: str) -> str:
        for value, name in self._names.items():
            if isinstance(value, str):
                text = text.replace(value, name)
        return text

    def _with_names_in_bytes(self, value: bytes) -> str | bytes:
        if value in self._names:
            return self._names[value]
        for each, name in self._names.items():
            if isinstance(each, str):
                value = value.replace(each.encode(), name.encode())
        return value

    def _producer(self, producer_id: int) -> str | int:
        """By its name, or by when it was first heard of."""
        if producer_id < 0:
            return producer_id
        count = len(self._names)
        return self._names.setdefault(("producer", producer_id), f"<unnamed {count}>")

    def name_producer(self, producer_id: int, name: str) -> None:
        self._names["producer", producer_id] = f"<{name}>"


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain: {what}")
        time.sleep(0.05)


Chapter = Callable[[Conversation], None]
CHAPTERS: dict[str, Chapter] = {}


def chapter(title: str) -> Callable[[Chapter], Chapter]:
    def register(talk: Chapter) -> Chapter:
        CHAPTERS[title] = talk
        return talk

    return register


def differences(theirs: Any, ours: Any, path: str = "") -> Sequence[str]:
    """Field by field, as `path: theirs, ours`."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        keys = list(dict.fromkeys([*theirs, *ours]))
        return [
            found
            for key in keys
            for found in differences(theirs.get(key), ours.get(key), f"{path}.{key}" if path else str(key))
        ]
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [
            found
            for number, pair in enumerate(zip(theirs, ours, strict=True))
            for found in differences(*pair, f"{path}[{number}]")
        ]
    return [] if theirs == ours else [f"{path or 'answer'}: Kafka {theirs!r}, Tidelog {ours!r}"]
