"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802): credentials, and both sides of the exchange.

The server derives no keys: it stores those that were derived (PBKDF2) when the password was set. Clients do, and it
takes milliseconds: `ScramClient` leaves it to its caller, between two calls.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from tidelog.sasl.exchange import SaslFailure

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
DEFAULT_ITERATIONS = 4096
MAX_ITERATIONS_OF_CLIENTS = 1_000_000
"""A server that asks for more could keep a client busy for minutes."""
NONCE_BYTES = 20

_NAME = r"(?:[^=,\0]|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>[!-+\--~]+)(?P<rest>,.*)?)",
    re.DOTALL,
)
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>[!-+\--~]+)(?:,(?!p=).*)?),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})(?:,.*)?")
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>[^,]*)|v=(?P<signature>{_BASE64}))(?:,.*)?")
_CREDENTIAL_FIELD = re.compile(r"(?P<name>[a-z_]+)=(?P<value>[^,]+)")


class ScramMechanism(NamedTuple):
    name: str
    type: int
    """Number in AlterUserScramCredentials."""
    hash_name: str
    key_bytes: int

    def derive(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Salted password by PBKDF2 (`Hi` in the RFC). Takes milliseconds, and releases the GIL."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def credential(self, salt: bytes, salted_password: bytes, iterations: int) -> "ScramCredential":
        stored_key = self.hash(self.hmac(salted_password, b"Client Key"))
        return ScramCredential(salt, stored_key, self.hmac(salted_password, b"Server Key"), iterations)


SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
SCRAM_MECHANISMS = {each.name: each for each in (SHA_256, SHA_512)}
SCRAM_TYPES = {each.type: each for each in (SHA_256, SHA_512)}


class ScramCredential(NamedTuple):
    """Credential that a server stores instead of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def to_text(self) -> str:
        """Text in the store, as in Kafka's ZooKeeper mode (Kafka: ScramCredentialUtils)."""
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def from_text(cls, text: str) -> "ScramCredential":
        """Raises ValueError."""
        found = {}
        for part in text.split(","):
            match = _CREDENTIAL_FIELD.fullmatch(part)
            if match is None:
                raise ValueError("not a SCRAM credential")
            found[match["name"]] = match["value"]
        try:
            salt, stored, server = (
                base64.b64decode(found[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(found["iterations"]))
        except (KeyError, binascii.Error) as error:
            raise ValueError("not a SCRAM credential") from error


def decoy_credential(
    mechanism: ScramMechanism, secret: bytes, user: str, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """Credential for a user who does not exist, so that clients cannot find out: the salt is always the same.

    No password matches, because nobody knows a key whose hash is the stored key.
    """
    digest = hmac.digest(secret, f"{mechanism.name}\0{user}".encode(), "sha512")
    return ScramCredential(new_salt(digest), digest[: mechanism.key_bytes], digest[: mechanism.key_bytes], iterations)


def new_salt(random_bytes: bytes) -> bytes:
    """130 random bits in base 36, as in Kafka. Needs 17 random bytes."""
    return _base36(int.from_bytes(random_bytes[:17], "big") >> 6)


def _base36(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(b"0123456789abcdefghijklmnopqrstuvwxyz"[digit])
    return bytes(reversed(digits)) or b"0"


class ScramServer:
    """Server side of one exchange. An unknown user fails only at the end, like a wrong password."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], ScramCredential | None],
        decoy_of: Callable[[str], ScramCredential],
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._decoy_of = decoy_of
        self._nonce = nonce
        self._first: re.Match[str] | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._is_known = False
        self.is_complete = False
        self.user = ""
        self.expires_at_ms: int | None = None

    def evaluate(self, message: bytes, now_ms: int) -> bytes:
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise SaslFailure("Invalid SCRAM message: not in UTF-8") from None
        return self._on_first(text) if self._first is None else self._on_final(text, self._first)

    def _on_first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslFailure("Invalid SCRAM client first message format")
        self.user = _unescaped(match["name"])
        authorization_id = _unescaped(match["authzid"] or "")
        if authorization_id and authorization_id != self.user:
            raise SaslFailure(
                "Authentication failed: Client requested an authorization id that is different from username",
                is_for_client=True,
            )
        found = self._credential_of(self.user)
        decoy = self._decoy_of(self.user)  # for known users, too: otherwise they would be faster
        self._is_known = found is not None and found.iterations >= MIN_ITERATIONS
        self._credential = credential = found if found is not None and self._is_known else decoy
        self._first, self._nonce = match, match["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def _on_final(self, text: str, first: re.Match[str]) -> bytes:
        match, credential, mechanism = _CLIENT_FINAL.fullmatch(text), self._credential, self._mechanism
        if match is None or credential is None:
            raise SaslFailure("Invalid SCRAM client final message format")
        if match["nonce"] != self._nonce:
            raise SaslFailure("Invalid client nonce in the final client message.")
        if _decode_base64(match["binding"]) != first["gs2"].encode():
            raise SaslFailure("Invalid channel binding in the final client message.")
        auth_message = f"{first['bare']},{self._server_first},{match['without_proof']}".encode()
        signature = mechanism.hmac(credential.stored_key, auth_message)
        proof = _decode_base64(match["proof"])
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        is_proved = hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        if not is_proved or len(proof) != mechanism.key_bytes or not self._is_known:
            raise SaslFailure("Invalid client credentials")
        self.is_complete = True
        server_signature = mechanism.hmac(credential.server_key, auth_message)
        return b"v=" + base64.b64encode(server_signature)


class KeyDerivation(NamedTuple):
    """Parameters from the server with which the client derives the salted password."""

    salt: bytes
    iterations: int


class ScramClient:
    """Client side of one exchange, in this order.

    `first_message`, `on_server_first`, `final_message` with the salted password, `on_server_final`.
    """

    def __init__(self, mechanism: ScramMechanism, user: str, nonce: str) -> None:
        self._mechanism = mechanism
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._nonce = nonce
        self._server_first = ""
        self._expected_signature = b""

    @property
    def first_message(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def on_server_first(self, message: bytes) -> KeyDerivation:
        """Raises SaslFailure."""
        self._server_first = message.decode(errors="replace")
        match = _SERVER_FIRST.fullmatch(self._server_first)
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SaslFailure("the server sent an invalid first SCRAM message")
        iterations = int(match["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS_OF_CLIENTS:
            raise SaslFailure(
                f"the server asks for {iterations} iterations, not {MIN_ITERATIONS} to {MAX_ITERATIONS_OF_CLIENTS}"
            )
        self._nonce = match["nonce"]
        return KeyDerivation(_decode_base64(match["salt"]), iterations)

    def final_message(self, salted_password: bytes) -> bytes:
        mechanism = self._mechanism
        without_proof = f"c=biws,r={self._nonce}"  # biws: base64 of "n,,", no channel binding
        auth_message = f"{self._bare},{self._server_first},{without_proof}".encode()
        client_key = mechanism.hmac(salted_password, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), auth_message)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._expected_signature = mechanism.hmac(mechanism.hmac(salted_password, b"Server Key"), auth_message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def on_server_final(self, message: bytes) -> None:
        """The server must prove that it has the credential of the user. Raises SaslFailure."""
        match = _SERVER_FINAL.fullmatch(message.decode(errors="replace"))
        if match is None:
            raise SaslFailure("the server sent an invalid final SCRAM message")
        if match["error"] is not None:
            raise SaslFailure(f"the server refused the login: {match['error'][:100]}")
        if not hmac.compare_digest(_decode_base64(match["signature"]), self._expected_signature):
            raise SaslFailure("the server does not know the password: it is not the server that it claims to be")


def nonce_of(random_bytes: bytes) -> str:
    return base64.b64encode(random_bytes).decode().rstrip("=")


def _unescaped(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslFailure("Invalid base64 in a SCRAM message") from None
