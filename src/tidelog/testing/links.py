"""Network partitions of a test cluster: connections of its brokers, which can be cut and healed.

Bytes of a cut connection wait in its socket, as they do when packets are lost: nothing is read, responses are held
back, new connections hang. When it is healed, everything arrives.
"""

import asyncio
import errno
from collections.abc import Callable, Sequence

from tidelog.runtime.clock import Clock
from tidelog.runtime.network import AcceptChannel, Channel, FramePart, FrameReceiver, Listener, Network, Tls
from tidelog.runtime.socket_channel import SocketChannel
from tidelog.testing.request_script import RequestScript
from tidelog.types import BrokerId

CLIENTS = 0
"""Stands for all clients, in place of a broker id."""

KIT = -1
"""Stands for the kit's own client, which inspects the cluster and is never cut off, in place of a broker id."""

MAX_OWNERS = 1000
"""Number of ports above which those of closed connections are dropped."""


class _DeadReceiver:
    """Receiver of a killed broker, which ignores everything."""

    def on_frame(self, frame: memoryview) -> None: ...

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None: ...


class Link:
    """One connection of a broker, which can be held."""

    def __init__(self, channel: SocketChannel, broker_id: BrokerId, wiring: "Wiring", peer: BrokerId | None) -> None:
        self.channel = channel
        self.broker_id = broker_id
        self._wiring = wiring
        self._peer = peer
        self._is_held = False
        self._unsent: list[Sequence[FramePart]] = []

    @property
    def peer(self) -> BrokerId:
        """Broker at the other end, which its port identifies."""
        if self._peer is not None:
            return self._peer
        return self._wiring.owner_of(self.channel.peer_port) or CLIENTS

    def update(self) -> None:
        """Hold or release the connection according to the current cuts and pauses."""
        should_hold = self._wiring.is_held(self.broker_id, self.peer)
        if should_hold and not self._is_held:
            self._hold()
        elif self._is_held and not should_hold:
            self._release()

    def _hold(self) -> None:
        self._is_held = True
        self.channel.reader.mute()
        self.channel.send = self._keep
        self.channel.flush = _do_nothing

    def _keep(self, parts: Sequence[FramePart]) -> None:
        self._unsent.append(parts)

    def _release(self) -> None:
        self._is_held = False
        channel = self.channel
        channel.send, channel.flush = channel.writer.send, channel.writer.flush
        unsent, self._unsent = self._unsent, []
        if channel.is_closed:
            return
        for parts in unsent:
            channel.send(parts)
        channel.flush()
        channel.reader.unmute()
        # Complete frames may have been received before the cut. Resuming delivers them.
        channel.reader.pause()
        channel.reader.resume()


def _do_nothing() -> None:
    """Replaces `flush` while a connection is held."""


class Wiring:
    """All connections of a cluster, with its cuts and paused brokers."""

    def __init__(self, script: RequestScript) -> None:
        self.script = script
        self._owner_of_port: dict[int, tuple[SocketChannel, BrokerId]] = {}
        self.broker_of_port: dict[int, BrokerId] = {}
        """Broker that listens on a port."""
        self._cuts: set[frozenset[BrokerId]] = set()
        self._paused: set[BrokerId] = set()
        self._links: set[Link] = set()
        self._changed = asyncio.Event()

    def is_held(self, one: BrokerId, other: BrokerId) -> bool:
        return other != KIT and (bool(self._paused & {one, other}) or frozenset((one, other)) in self._cuts)

    def cut(self, one: BrokerId, other: BrokerId) -> None:
        self._cuts.add(frozenset((one, other)))
        self._update()

    def heal(self, one: BrokerId | None = None, other: BrokerId | None = None) -> None:
        """Heal the cut between two brokers, all cuts of one, or all cuts."""
        named = {broker_id for broker_id in (one, other) if broker_id is not None}
        self._cuts = {pair for pair in self._cuts if not named <= pair}
        self._update()

    def pause(self, broker_id: BrokerId) -> None:
        self._paused.add(broker_id)
        self._update()

    def resume(self, broker_id: BrokerId) -> None:
        self._paused.discard(broker_id)
        self._update()

    def _update(self) -> None:
        self._links = {link for link in self._links if not link.channel.is_closed}
        for link in self._links:
            link.update()
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until_open(self, one: BrokerId, other: BrokerId) -> None:
        """While the two are cut off from each other, a connection is neither established nor refused."""
        while self.is_held(one, other):
            await self._changed.wait()

    def add(self, channel: Channel, broker_id: BrokerId, peer: BrokerId | None) -> Link:
        assert isinstance(channel, SocketChannel)
        link = Link(channel, broker_id, self, peer)
        self._links = {known for known in self._links if not known.channel.is_closed}
        self._links.add(link)
        link.update()
        return link

    def note_owner(self, channel: Channel, broker_id: BrokerId) -> None:
        """Record which broker made a connection. The accepting broker may have taken it for that of a client."""
        assert isinstance(channel, SocketChannel)
        port = channel.local_port
        if len(self._owner_of_port) > MAX_OWNERS:
            self._owner_of_port = {key: owner for key, owner in self._owner_of_port.items() if not owner[0].is_closed}
        self._owner_of_port[port] = (channel, broker_id)
        for link in self._links:
            if link.channel.peer_port == port:
                link.update()

    def owner_of(self, port: int) -> BrokerId | None:
        """Broker that connected from this port; None: a client. The port of a closed connection may be in use again."""
        channel, broker_id = self._owner_of_port.get(port, (None, None))
        return None if channel is None or channel.is_closed else broker_id


class MachineNetwork:
    """Network of one broker."""

    def __init__(self, network: Network, broker_id: BrokerId, wiring: Wiring, clock: Clock) -> None:
        self._network = network
        self.broker_id = broker_id
        self.wiring = wiring
        self.clock = clock
        self.disk_delay_s = 0.0
        """Requests that read or write records take this much longer."""
        self._listeners: list[Listener] = []
        self._links: set[Link] = set()

    def host_name(self) -> str:
        return self._network.host_name()

    def sender_of(self, channel: Channel) -> BrokerId | None:
        """Broker that connected; None: a client."""
        return self.wiring.owner_of(channel.peer_port)

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> Listener:
        def accept_and_note(channel: Channel) -> FrameReceiver | None:
            receiver = accept(channel)
            if receiver is not None:
                self._note(channel, None)
            return receiver

        listener = await self._network.listen(host, port, accept_and_note, tls)
        self._listeners.append(listener)
        return listener

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> Channel:
        peer = self.wiring.broker_of_port.get(port, CLIENTS)
        await self.wiring.wait_until_open(self.broker_id, peer)

        def attach_and_note(channel: Channel) -> FrameReceiver:
            self.wiring.note_owner(channel, self.broker_id)
            self._note(channel, peer)
            return attach(channel)

        return await self._network.connect(host, port, attach_and_note)

    def _note(self, channel: Channel, peer: BrokerId | None) -> None:
        self._links = {known for known in self._links if not known.channel.is_closed}
        self._links.add(self.wiring.add(channel, self.broker_id, peer))

    def power_off(self) -> None:
        """Close all sockets, as the operating system does for a killed process."""
        for listener in self._listeners:
            listener.close()
        for link in self._links:
            if not link.channel.is_closed:
                link.channel.receiver = _DeadReceiver()
                link.channel.close("killed")


class KitNetwork:
    """Network of the kit's own client, which faults do not affect. It connects only to brokers that are up to date."""

    def __init__(self, network: Network, wiring: Wiring, is_up_to_date: Callable[[BrokerId], bool]) -> None:
        self._network = network
        self._wiring = wiring
        self._is_up_to_date = is_up_to_date

    def host_name(self) -> str:
        return self._network.host_name()

    async def listen(self, host: str, port: int, accept: AcceptChannel, tls: Tls | None = None) -> Listener:
        raise NotImplementedError("the kit's client does not listen")

    async def connect(self, host: str, port: int, attach: Callable[[Channel], FrameReceiver]) -> Channel:
        if not self._is_up_to_date(self._wiring.broker_of_port[port]):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "the broker is paused, or the others have replaced it")

        def attach_and_note(channel: Channel) -> FrameReceiver:
            self._wiring.note_owner(channel, KIT)
            return attach(channel)

        return await self._network.connect(host, port, attach_and_note)
