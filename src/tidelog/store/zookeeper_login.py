"""Login to ZooKeeper by SASL DIGEST-MD5: the client's side of RFC 2831, as ZooKeeper's own client speaks it."""

# Core: no clock, no I/O, no await.

import hashlib
import hmac
import re
from typing import NamedTuple

REALM_OF_ZOOKEEPER = "zk-sasl-md5"
DIGEST_URI = f"zookeeper/{REALM_OF_ZOOKEEPER}"
"""ZooKeeper's servers all have the same name in the digest, whatever their host."""
QUALITY_OF_PROTECTION = "auth"
NONCE_COUNT = "00000001"
NONCE_BYTES = 16

_DIRECTIVE = re.compile(
    r'\s*(?P<name>[A-Za-z0-9-]+)\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^",\s]*))\s*(?:,|$)'
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class LoginRefused(Exception):
    """ZooKeeper does not accept the login, or is not what it claims to be. The message never has the password in it."""


class ZooKeeperLogin(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"ZooKeeperLogin({self.user!r})"


class DigestMd5Client:
    """One login: the response to the server's challenge, then the check of the server's proof."""

    def __init__(self, login: ZooKeeperLogin, nonce: str, digest_uri: str = DIGEST_URI) -> None:
        self._login = login
        self._nonce = nonce
        self._digest_uri = digest_uri
        self._expected_proof = ""

    def respond(self, challenge: bytes) -> bytes:
        """Raises LoginRefused."""
        offered = _directives(challenge)
        nonce, realm = offered.get("nonce", ""), offered.get("realm", "")
        if not nonce or offered.get("algorithm") != "md5-sess":
            raise LoginRefused("the challenge of the server is not one of DIGEST-MD5")
        if QUALITY_OF_PROTECTION not in offered.get("qop", QUALITY_OF_PROTECTION).split(","):
            raise LoginRefused(f"the server does not offer qop={QUALITY_OF_PROTECTION}")
        self._expected_proof = self._digest("", realm, nonce)
        return ",".join(
            [
                "charset=utf-8",
                f'username="{_escaped(self._login.user)}"',
                f'realm="{_escaped(realm)}"',
                f'nonce="{_escaped(nonce)}"',
                f"nc={NONCE_COUNT}",
                f'cnonce="{self._nonce}"',
                f'digest-uri="{self._digest_uri}"',
                f"response={self._digest('AUTHENTICATE', realm, nonce)}",
                f"qop={QUALITY_OF_PROTECTION}",
            ]
        ).encode()

    def check_proof(self, message: bytes) -> None:
        """Check that the server knows the password, too. Raises LoginRefused."""
        proof = _directives(message).get("rspauth", "")
        if not self._expected_proof or not hmac.compare_digest(proof.encode(), self._expected_proof.encode()):
            raise LoginRefused("the server did not prove that it knows the password")

    def _digest(self, method: str, realm: str, nonce: str) -> str:
        secret = b":".join(_hashed_form(each) for each in (self._login.user, realm, self._login.password))
        session = _md5(secret).digest() + f":{nonce}:{self._nonce}".encode()
        asked = _md5(f"{method}:{self._digest_uri}".encode()).hexdigest()
        middle = f"{nonce}:{NONCE_COUNT}:{self._nonce}:{QUALITY_OF_PROTECTION}"
        return _md5(f"{_md5(session).hexdigest()}:{middle}:{asked}".encode()).hexdigest()


def _md5(data: bytes) -> "hashlib._Hash":
    """The mechanism has no other; a connection that needs protection has TLS."""
    return hashlib.md5(data, usedforsecurity=False)


def _hashed_form(text: str) -> bytes:
    """RFC 2831, 2.1.2.1: text of Latin-1 letters only is hashed in that encoding, though it is sent in UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _directives(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("the server sent something that is not text") from None
    found, position = dict[str, str](), 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise LoginRefused("the server sent something that is no message of DIGEST-MD5")
        quoted = match["quoted"]
        found[match["name"].lower()] = match["plain"] if quoted is None else _ESCAPE.sub(r"\1", quoted)
        position = match.end()
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
