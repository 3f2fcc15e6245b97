"""A broker that answers with the very bytes a test gives it, to see what the client makes of them."""

from collections.abc import Callable, Sequence

from tidelog.client.network.connection import ClientConnection
from tidelog.protocol.codec import encode
from tidelog.protocol.header import RequestHeader, read_request_header, response_header
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from tidelog.protocol.structs import Response
from tidelog.runtime.network import Channel, Network

HOST, PORT = "127.0.0.1", 9092

VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=0, min_version=0, max_version=9),
        ApiVersion(api_key=1, min_version=4, max_version=12),
        ApiVersion(api_key=3, min_version=0, max_version=99),
        ApiVersion(api_key=18, min_version=0, max_version=4),
    ]
)

Script = Callable[[RequestHeader], Sequence[bytes]]
"""Which frames answer a request."""


def answer(header: RequestHeader, response: Response, version: int | None = None) -> bytes:
    version = header.api_version if version is None else version
    return response_header(header.api_key, version, header.correlation_id) + encode(response, version)


class ScriptedConnection:
    def __init__(self, channel: Channel, script: Script) -> None:
        self.channel = channel
        self._script = script
        self.requests: list[RequestHeader] = []
        self.wake_ups: list[int] = []
        self._in_wake_up = 0
        self.closed_because: str | None = None

    def on_frame(self, frame: memoryview) -> None:
        header, _ = read_request_header(frame)
        self.requests.append(header)
        self._in_wake_up += 1
        for part in self._script(header):
            self.channel.send([part])

    def on_frames_done(self) -> None:
        self.wake_ups.append(self._in_wake_up)
        self._in_wake_up = 0
        self.channel.flush()

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None:
        self.closed_because = reason


class ScriptedBroker:
    """Tells its versions as any broker; what it says to everything else is up to the script."""

    def __init__(self, script: Script, versions: Script = lambda header: [answer(header, VERSIONS)]) -> None:
        self._script = script
        self._versions = versions
        self.connections: list[ScriptedConnection] = []

    def _reply(self, header: RequestHeader) -> Sequence[bytes]:
        return self._versions(header) if header.api_key == 18 else self._script(header)

    async def listen(self, network: Network, port: int = PORT) -> None:
        listener = await network.listen(HOST, port, self._accept)
        listener.start()

    def _accept(self, channel: Channel) -> ScriptedConnection:
        self.connections.append(ScriptedConnection(channel, self._reply))
        return self.connections[-1]


async def open_connection(network: Network, broker: ScriptedBroker) -> ClientConnection:
    await broker.listen(network)
    return await ClientConnection.open(network, HOST, PORT, "test")
