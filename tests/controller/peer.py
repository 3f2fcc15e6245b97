"""A broker on a network of memory that writes down what it is asked, and answers as a test wants."""

from collections.abc import Callable

from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY, APIS
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.header import read_request_header, response_header
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Channel, Listener, Network

HOST = "127.0.0.1"

Answer = Callable[[Request], Response | None]
"""None: silence."""


def no_error(request: Request) -> Response:
    return API_KEYS[request.__api_key__].response()


class Peer:
    def __init__(self, response: Answer = no_error) -> None:
        self.answer = response
        self.requests: list[Request] = []
        self.client_ids: list[str | None] = []
        self.connections: list[PeerConnection] = []
        self._listener: Listener | None = None

    async def listen(self, network: Network, port: int) -> None:
        self._listener = await network.listen(HOST, port, self._accept)
        self._listener.start()

    def leave(self) -> None:
        """Close everything, as a process that dies."""
        assert self._listener is not None
        self._listener.close()
        for connection in self.connections:
            connection.channel.close("the peer left")

    def _accept(self, channel: Channel) -> "PeerConnection":
        self.connections.append(PeerConnection(channel, self))
        return self.connections[-1]


class PeerConnection:
    def __init__(self, channel: Channel, peer: Peer) -> None:
        self.channel = channel
        self._peer = peer

    def on_frame(self, frame: memoryview) -> None:
        header, position = read_request_header(frame)
        if header.api_key == API_VERSIONS_KEY:
            keys = [ApiVersion(api.key, api.versions.first, api.versions.last) for api in APIS]
            response: Response | None = ApiVersionsResponse(api_keys=keys)
        else:
            request = decode(API_KEYS[header.api_key].request, header.api_version, bytes(frame[position:]))
            self._peer.requests.append(request)
            self._peer.client_ids.append(header.client_id)
            response = self._peer.answer(request)
        if response is not None:
            start = response_header(header.api_key, header.api_version, header.correlation_id)
            self.channel.send([start, encode(response, header.api_version)])

    def on_frames_done(self) -> None:
        self.channel.flush()

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...
