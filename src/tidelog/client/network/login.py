"""Login of a client on a connection (SASL): for clients, and for brokers that connect to each other."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from tidelog.client.network.in_flight import LoginFailed
from tidelog.config.sasl import OAUTHBEARER, PLAIN, SaslSettings
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, UnknownServerError
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.clock import Clock
from tidelog.runtime.network import AcceptChannel, Channel, FrameReceiver, Listener, Network, Tls
from tidelog.runtime.randomness import Randomness
from tidelog.runtime.workers import Workers
from tidelog.sasl.exchange import SaslFailure
from tidelog.sasl.oauthbearer import oauthbearer_message, unsecured_token
from tidelog.sasl.plain import plain_message
from tidelog.sasl.scram import NONCE_BYTES, SCRAM_MECHANISMS, KeyDerivation, ScramClient, nonce_of

ResponseT = TypeVar("ResponseT", bound=Response)
HANDSHAKE_VERSION = 1


class AskingConnection(Protocol):
    @property
    def address(self) -> str: ...

    async def ask(self, request: Request, response_type: type[ResponseT], *, version: int | None = None) -> ResponseT:
        """Raises ConnectionLost."""
        ...


class Credentials(NamedTuple):
    """How to log in. `options` are those of the login module."""

    mechanism: str
    options: Mapping[str, str]
    token_url: str | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism})"

    @property
    def user(self) -> str:
        return self.options.get("username", "")


class ClientLogin:
    """Logs in on every new connection. The key derived from the password is kept for the next one."""

    def __init__(self, credentials: Credentials, randomness: Randomness, workers: Workers, clock: Clock) -> None:
        self._credentials = credentials
        self._randomness = randomness
        self._workers = workers
        self._clock = clock
        self._derived: tuple[KeyDerivation, bytes] | None = None

    async def log_in(self, connection: AskingConnection) -> int:
        """Returns the milliseconds until the client must log in again, or 0. Raises LoginFailed, ConnectionLost."""
        mechanism = self._credentials.mechanism
        handshake = await connection.ask(
            SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version=HANDSHAKE_VERSION
        )
        if handshake.error_code != NO_ERROR:
            name = ERRORS_BY_CODE.get(handshake.error_code, UnknownServerError).__name__
            raise LoginFailed(
                f"{connection.address} does not let clients log in by {mechanism} ({name});"
                f" it offers: {', '.join(handshake.mechanisms) or 'nothing'}"
            )
        exchange = _Exchange(connection)
        try:
            if mechanism == PLAIN:
                await exchange.send(plain_message(self._credentials.user, self._credentials.options["password"]))
            elif mechanism == OAUTHBEARER:
                await self._send_token(exchange)
            else:
                await self._scram(exchange)
        except SaslFailure as failure:
            raise LoginFailed(f"cannot log in to {connection.address}: {failure}") from failure
        return exchange.lifetime_ms

    async def _scram(self, exchange: "_Exchange") -> None:
        mechanism = SCRAM_MECHANISMS[self._credentials.mechanism]
        nonce = nonce_of(self._randomness.bytes(NONCE_BYTES))
        client = ScramClient(mechanism, self._credentials.user, nonce)
        wanted = client.on_server_first(await exchange.send(client.first_message))
        if self._derived is None or self._derived[0] != wanted:
            password = self._credentials.options["password"]
            key = await self._workers.run(mechanism.derive, password, wanted.salt, wanted.iterations)
            self._derived = (wanted, key)
        client.on_server_final(await exchange.send(client.final_message(self._derived[1])))

    async def _send_token(self, exchange: "_Exchange") -> None:
        refusal = await exchange.send(oauthbearer_message(await self._token()))
        if refusal:
            await exchange.send(b"\x01")  # the server fails the login in its response to this
            raise SaslFailure(refusal.decode(errors="replace")[:200])

    async def _token(self) -> str:
        # Few clients need it, and it imports urllib.request, which takes 10 ms.
        from tidelog.runtime.url_reading import read_url, request_token

        options, url = self._credentials.options, self._credentials.token_url
        try:
            if url is None:
                return unsecured_token(options["unsecuredLoginStringClaim_sub"], self._clock.now_ms())
            if url.startswith("file:"):
                return (await self._workers.run(read_url, url)).strip()
            client_id, secret = options.get("clientId", ""), options.get("clientSecret", "")
            return await self._workers.run(request_token, url, client_id, secret, options.get("scope"))
        except OSError as error:
            raise SaslFailure(str(error)) from error
        except KeyError as error:
            raise SaslFailure(f"the login module lacks the option {error.args[0]}") from None


class _Exchange:
    """Tokens of one login."""

    def __init__(self, connection: AskingConnection) -> None:
        self._connection = connection
        self.lifetime_ms = 0

    async def send(self, token: bytes) -> bytes:
        """The server's next token. Raises SaslFailure."""
        response = await self._connection.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if response.error_code != NO_ERROR:
            name = ERRORS_BY_CODE.get(response.error_code, UnknownServerError).__name__
            raise SaslFailure(response.error_message or name)
        self.lifetime_ms = response.session_lifetime_ms
        return bytes(response.auth_bytes)


class LoginNetwork:
    """A network whose clients log in on every connection that they open."""

    def __init__(self, network: Network, login: ClientLogin) -> None:
        self._network = network
        self.login = login

    def host_name(self) -> str:
        return self._network.host_name()

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> Listener:
        return await self._network.listen(host, port, accept, tls)

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> Channel:
        return await self._network.connect(host, port, attach)


def login_of(network: Network) -> ClientLogin | None:
    return network.login if isinstance(network, LoginNetwork) else None


def inter_broker_credentials(settings: SaslSettings, options: Mapping[str, str]) -> Credentials:
    """How a broker logs in to others; `settings` are those of the mechanism on the listener between brokers."""
    mechanism = settings.sasl_mechanism_inter_broker_protocol
    given = {
        "clientId": settings.sasl_oauthbearer_client_credentials_client_id,
        "clientSecret": settings.sasl_oauthbearer_client_credentials_client_secret,
        "scope": settings.sasl_oauthbearer_scope,
    }
    options = {**options, **{name: value for name, value in given.items() if value is not None}}
    return Credentials(mechanism, options, settings.sasl_oauthbearer_token_endpoint_url)
