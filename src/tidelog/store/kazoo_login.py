"""Login on a new connection of kazoo, before its first request.

Not kazoo's own, which takes a server that dies meanwhile for a refusal, and asks a server without logins for ever.
"""

from collections.abc import Callable
from typing import Any

from kazoo.exceptions import AuthFailedError, ConnectionDropped, SessionClosedRequireSaslError
from kazoo.protocol.serialization import SASL

from tidelog.store.zookeeper_login import NONCE_BYTES, DigestMd5Client, LoginRefused, ZooKeeperLogin

WRONG_PASSWORD_ERRORS = (AuthFailedError.code, SessionClosedRequireSaslError.code)


class KazooLogin:
    def __init__(self, login: ZooKeeperLogin, random_bytes: Callable[[int], bytes]) -> None:
        self.user = login.user
        self._login = login
        self._random_bytes = random_bytes

    def log_in(self, connection: Any, timeout_s: float) -> None:
        """Runs in kazoo's thread. Raises LoginRefused, or kazoo's exceptions of a connection that is lost."""
        client = DigestMd5Client(self._login, self._random_bytes(NONCE_BYTES).hex())
        challenge = _exchange(connection, b"", timeout_s, xid=1)
        if not challenge:
            raise LoginRefused("the server knows no logins by SASL: its JAAS file needs a section Server")
        proof = _exchange(connection, client.respond(challenge), timeout_s, xid=2)
        if not proof:  # a server with zookeeper.allowSaslFailedClients goes on without the login
            raise LoginRefused("wrong user name or password")
        client.check_proof(proof)


def _exchange(connection: Any, token: bytes, timeout_s: float, xid: int) -> bytes:
    connection._submit(SASL(token), timeout_s, xid)
    header, buffer, offset = connection._read_header(timeout_s)
    if header.xid != xid:
        raise ConnectionDropped(f"the response to the login has xid {header.xid} instead of {xid}")
    if header.err in WRONG_PASSWORD_ERRORS:
        raise LoginRefused("wrong user name or password")
    if header.err:
        raise LoginRefused(f"the server answered error {header.err}")
    answer, _ = SASL.deserialize(buffer, offset)
    return bytes(answer or b"")
