"""One connection to a broker: API version negotiation, requests and responses (NetworkClient)."""

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar

from tidelog import __version__
from tidelog.client.network.in_flight import ConnectionLost, InFlightRequest, InFlightRequests
from tidelog.client.network.login import ClientLogin, login_of
from tidelog.config.listeners import host_and_port
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, UnknownServerError, UnsupportedVersion
from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY
from tidelog.protocol.codec import Decoder, decoder
from tidelog.protocol.fields import Versions
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.deferred import set_exception_unless_done, set_result_unless_done
from tidelog.runtime.network import Channel, Network
from tidelog.types import Buffer

__all__ = ["ClientConnection", "ConnectionLost"]

ResponseT = TypeVar("ResponseT", bound=Response)

REAUTHENTICATION_AFTER = 0.85
"""Part of a session's lifetime after which a client logs in again (KIP-368)."""
REAUTHENTICATION_TIMEOUT_S = 10.0
MAX_REMEMBERED_VERSIONS_BYTES = 16 * 1024


class ClientConnection:
    """Pipelined requests, answered in order. A protocol violation closes the connection."""

    def __init__(self, in_flight: InFlightRequests, host: str, port: int) -> None:
        self._in_flight = in_flight
        self.host = host
        self.port = port
        self._broker_versions: dict[int, ApiVersion] = {}
        self._versions: dict[int, int] = {}
        self._reauthentication: asyncio.Task[None] | None = None
        self.supported_features: dict[str, int] = {}
        """Features of this broker, with their maximum version."""
        self.finalized_features: dict[str, int] = {}
        """Finalized features of the cluster, with their level (KIP-584)."""

    @classmethod
    async def open(
        cls, network: Network, host: str, port: int, client_id: str, *, timeout_s: float = 30.0
    ) -> "ClientConnection":
        """Connect and negotiate versions with ApiVersions. Raises ConnectionLost."""
        address = host_and_port(host, port)
        created: list[InFlightRequests] = []

        def attach(channel: Channel) -> InFlightRequests:
            created.append(InFlightRequests(channel, client_id))
            return created[0]

        try:
            async with asyncio.timeout(timeout_s):
                await network.connect(host, port, attach)
                connection = cls(created[0], host, port)
                await connection._learn_versions()
                await connection._log_in(login_of(network))
                return connection
        except BaseException as error:
            if created:
                created[0].close("cannot set up the connection")
            if isinstance(error, TimeoutError):
                raise ConnectionLost(f"{address} did not answer within {timeout_s:g} s") from None
            if isinstance(error, OSError | UnicodeError):
                raise ConnectionLost(f"cannot connect to {address}: {_reason(error)}") from error
            raise

    async def _learn_versions(self) -> None:
        response = await self._ask_versions(ApiVersionsRequest.__versions__.last)
        if response.error_code == UnsupportedVersion.code:
            known = {api.api_key: api.max_version for api in response.api_keys}
            latest = ApiVersionsRequest.__versions__.last
            response = await self._ask_versions(min(known.get(API_VERSIONS_KEY, 0), latest))
        if response.error_code != NO_ERROR:
            name = ERRORS_BY_CODE.get(response.error_code, UnknownServerError).__name__
            raise ConnectionLost(f"{self.address} refuses ApiVersions: error {response.error_code} ({name})")
        self._broker_versions = {api.api_key: api for api in response.api_keys}
        self.supported_features = {each.name: each.max_version for each in response.supported_features}
        self.finalized_features = {each.name: each.max_version_level for each in response.finalized_features}

    async def _log_in(self, login: ClientLogin | None) -> None:
        lifetime_ms = 0 if login is None else await login.log_in(self)
        if login is not None and lifetime_ms > 0:
            after_s = lifetime_ms / 1000 * REAUTHENTICATION_AFTER
            asyncio.get_running_loop().call_later(after_s, self._begin_reauthentication, login)

    def _begin_reauthentication(self, login: ClientLogin) -> None:
        if not self.is_closed:
            self._reauthentication = asyncio.get_running_loop().create_task(self._reauthenticate(login))

    async def _reauthenticate(self, login: ClientLogin) -> None:
        """Log in again before the session ends. Other requests wait meanwhile."""
        self._in_flight.hold()
        try:
            async with asyncio.timeout(REAUTHENTICATION_TIMEOUT_S):
                await self._log_in(login)
            self._in_flight.release()
        except (ConnectionLost, TimeoutError) as error:
            self.close(f"cannot log in again: {error or 'no response'}")

    async def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name="tidelog", client_software_version=__version__)
        return await self.ask(request, ApiVersionsResponse, version=version)

    # ---- state

    @property
    def address(self) -> str:
        return host_and_port(self.host, self.port)

    @property
    def is_closed(self) -> bool:
        return self._in_flight.closed_because is not None

    @property
    def requests_in_flight(self) -> int:
        return self._in_flight.requests_in_flight

    @property
    def on_closed(self) -> Callable[[str], None] | None:
        """Called once with the reason, after `on_lost` of all requests in flight."""
        return self._in_flight.on_closed_hook

    @on_closed.setter
    def on_closed(self, listener: Callable[[str], None] | None) -> None:
        self._in_flight.on_closed_hook = listener

    def version_of(self, request_type: type[Request]) -> int:
        """The highest version that both sides support. Raises UnsupportedVersion."""
        version = self._versions.get(request_type.__api_key__)
        if version is None:
            version = self._versions[request_type.__api_key__] = self._negotiate(request_type)
        return version

    def _negotiate(self, request_type: type[Request]) -> int:
        ours, supported = request_type.__versions__, self._broker_versions.get(request_type.__api_key__)
        name = request_type.__name__.removesuffix("Request")
        if supported is None:
            raise UnsupportedVersion(f"the broker at {self.address} does not support {name}")
        theirs = Versions(supported.min_version, supported.max_version)
        version = min(ours.last, theirs.last)
        if version not in ours or version not in theirs:
            raise UnsupportedVersion(
                f"the broker at {self.address} supports versions {theirs} of {name}, this client {ours}"
            )
        return version

    # ---- requests

    def send(
        self,
        request: Request,
        on_response: Callable[[Response], None],
        on_lost: Callable[[ConnectionLost], None],
        *,
        version: int | None = None,
    ) -> None:
        """Send a request. `on_response` runs while the memory of its frame is valid: records are views into it.

        The request is flushed at the end of this loop turn, or of the wake-up if called within `on_response`. Exactly
        one of the two callbacks is called, once, and never before this returns.
        """
        self._send(request, on_response, on_lost, version, is_kept=False)

    def send_without_answer(self, request: Request, *, version: int | None = None) -> None:
        """For Produce with acks=0, which has no response."""
        self._in_flight.send(request, self.version_of(type(request)) if version is None else version, None)

    async def ask(
        self,
        request: Request,
        response_type: type[ResponseT],
        *,
        timeout_s: float | None = None,
        version: int | None = None,
    ) -> ResponseT:
        """The response, in its own memory. Raises ConnectionLost; a timeout closes the connection."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Response] = loop.create_future()
        on_response, on_lost = partial(set_result_unless_done, answer), partial(set_exception_unless_done, answer)
        self._send(request, on_response, on_lost, version, is_kept=True)
        timer = None if timeout_s is None else loop.call_later(timeout_s, _time_out, answer)
        try:
            response = await answer
        except TimeoutError:
            self.close(f"{type(request).__name__} was not answered within {timeout_s:g} s")
            raise self._in_flight.lost() from None
        finally:
            if timer is not None:
                timer.cancel()
            del answer, on_response, on_lost, timer  # else the traceback of an error would refer to the error
        if not isinstance(response, response_type):
            raise TypeError(f"{type(request).__name__} is answered with {type(response).__name__}")
        return response

    def _send(
        self,
        request: Request,
        on_response: Callable[[Response], None],
        on_lost: Callable[[ConnectionLost], None],
        version: int | None,
        *,
        is_kept: bool,
    ) -> None:
        if version is None:
            version = self.version_of(type(request))
        decode = _decoder_of_answer(request.__api_key__, version)
        pending = InFlightRequest(request, version, decode, on_response, on_lost, is_kept=is_kept)
        self._in_flight.send(request, version, pending)

    async def drained(self) -> None:
        """Wait until everything is sent, or the connection is closed."""
        await self._in_flight.drained()

    def close(self, reason: str = "no longer needed") -> None:
        self._in_flight.close(reason)


def _decoder_of_answer(api_key: int, version: int) -> Decoder[Response]:
    if api_key == API_VERSIONS_KEY:
        return partial(_decode_versions, version)
    return decoder(API_KEYS[api_key].response, version)


def _decode_versions(version: int, frame: Buffer, position: int) -> tuple[Response, int]:
    """A broker that does not support the version responds in version 0 (KIP-511)."""
    error_code = int.from_bytes(frame[position : position + 2], "big")
    if error_code == UnsupportedVersion.code:
        version = 0
    if len(frame) > MAX_REMEMBERED_VERSIONS_BYTES:
        return decoder(ApiVersionsResponse, version)(frame, position)
    return _decode_remembered_versions(version, bytes(frame[position:])), len(frame)


@lru_cache(maxsize=32)
def _decode_remembered_versions(version: int, body: bytes) -> ApiVersionsResponse:
    """Remembered: every connection begins with this response, the same from all brokers of a version."""
    return decoder(ApiVersionsResponse, version)(body, 0)[0]


def _time_out(answer: "asyncio.Future[Response]") -> None:
    set_exception_unless_done(answer, TimeoutError())


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
