"""Connections of principals who have logged in by SASL/PLAIN, and brokers that ask for it."""

import struct
from collections.abc import Sequence

from compat.answers.conversation import ConnectionClosed, Line

PASSWORD = "correct horse"
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas_config(users: Sequence[str], own: str) -> str:
    known = " ".join(f'user_{name}="{PASSWORD}"' for name in users)
    return f'{PLAIN_MODULE} required username="{own}" password="{PASSWORD}" {known};'


class LoggedInLine(Line):
    """A connection that logs in before its first request, and again after the broker has closed it."""

    def __init__(self, bootstrap: str, client_id: str, user: str) -> None:
        self._user = user
        super().__init__(bootstrap, client_id)
        self._log_in()

    def _open_again(self) -> None:
        super()._open_again()
        self._log_in()

    def _log_in(self) -> None:
        handshake = self._exchange(SASL_HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN")
        assert handshake[:2] == b"\0\0", f"the broker does not know PLAIN: {handshake!r}"
        token = f"\0{self._user}\0{PASSWORD}".encode()
        answer = self._exchange(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        assert answer[:2] == b"\0\0", f"the login of {self._user} failed: {answer!r}"

    def _exchange(self, key: int, version: int, body: bytes) -> bytes:
        name = self._client_id.encode()
        frame = struct.pack(">hhih", key, version, 0, len(name)) + name + body
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)[4:]


def can_log_in(bootstrap: str, user: str) -> bool:
    """Whether the broker lets the user in: it may need a moment after its start."""
    try:
        LoggedInLine(bootstrap, "probe", user).close()
    except (TimeoutError, OSError, ConnectionClosed, AssertionError):
        return False
    return True
