"""Blocking connections to a broker on this machine, and frames in the project's own codec."""

import ipaddress
import socket
from contextlib import suppress
from typing import Self, TypeVar

from tidelog.protocol.codec import decode, encode
from tidelog.protocol.header import read_response_header, request_header
from tidelog.protocol.structs import Request, Response

ResponseT = TypeVar("ResponseT", bound=Response)

CLIENT_ID = "siege"
LENGTH_BYTES = 4


def frame(request: Request, version: int, correlation_id: int = 1) -> bytes:
    body = request_header(request.__api_key__, version, correlation_id, CLIENT_ID) + encode(request, version)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def connect(address: str, timeout_s: float = 20.0, receive_buffer_bytes: int = 0) -> socket.socket:
    """To this machine and nowhere else: whatever is sent here is meant to hurt."""
    host, _, port = address.rpartition(":")
    if not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"{address} is not on this machine")
    connection = socket.socket()
    try:
        if receive_buffer_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.settimeout(timeout_s)
        connection.connect((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


class Asking:
    """A well-behaved connection: one request, then its answer."""

    def __init__(self, address: str, timeout_s: float = 20.0) -> None:
        self.socket = connect(address, timeout_s)

    def ask(self, request: Request, version: int, response_type: type[ResponseT]) -> ResponseT:
        self.socket.sendall(frame(request, version))
        body = self._receive(int.from_bytes(self._receive(LENGTH_BYTES), "big"))
        _, position = read_response_header(memoryview(body), request.__api_key__, version)
        return decode(response_type, version, body[position:])

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self.socket.recv(size - len(received))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            received += piece
        return bytes(received)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.socket.close()
