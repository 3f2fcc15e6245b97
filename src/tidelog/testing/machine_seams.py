"""Network and disk of one broker that know what it holds, so that a kill can take it away: sockets and locks."""

from collections.abc import Callable

from tidelog.runtime.disk import Lock, SystemDisk
from tidelog.runtime.network import AcceptChannel, Channel, FrameReceiver, Listener, Network, Tls
from tidelog.runtime.socket_channel import SocketChannel
from tidelog.runtime.socket_network import SocketNetwork


class _DeadReceiver:
    """A killed broker learns nothing."""

    def on_frame(self, frame: memoryview) -> None: ...

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...


class MachineNetwork:
    """The network of one broker."""

    def __init__(self, network: SocketNetwork) -> None:
        self._network: Network = network
        self._listeners: list[Listener] = []
        self._channels: set[SocketChannel] = set()

    def host_name(self) -> str:
        return self._network.host_name()

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> Listener:
        def accept_and_note(channel: Channel) -> FrameReceiver | None:
            self._note(channel)
            return accept(channel)

        listener = await self._network.listen(host, port, accept_and_note, tls)
        self._listeners.append(listener)
        return listener

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> Channel:
        def attach_and_note(channel: Channel) -> FrameReceiver:
            self._note(channel)
            return attach(channel)

        return await self._network.connect(host, port, attach_and_note)

    def _note(self, channel: Channel) -> None:
        assert isinstance(channel, SocketChannel)
        self._channels = {known for known in self._channels if not known.is_closed}
        self._channels.add(channel)

    def power_off(self) -> None:
        """Close all sockets, as the operating system does for a killed process."""
        for listener in self._listeners:
            listener.close()
        for channel in self._channels:
            if not channel.is_closed:
                channel.receiver = _DeadReceiver()
                channel.close("killed")


class MachineDisk(SystemDisk):
    """The file system, for one broker."""

    def __init__(self) -> None:
        super().__init__()
        self._locks: list[Lock] = []

    def lock(self, path: str) -> Lock:  # type: ignore[override]
        self._locks.append(super().lock(path))
        return self._locks[-1]

    def release_locks(self) -> None:
        """As the operating system does for a killed process."""
        for lock in self._locks:
            lock.release()
        self._locks.clear()
