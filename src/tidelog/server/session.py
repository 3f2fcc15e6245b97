"""Session of a connection: who sends its requests, from where, and on which listener (RequestContext in Kafka)."""

from typing import NamedTuple

from tidelog.config.principal_mapping import PrincipalMapper
from tidelog.runtime.network import Channel


class Principal(NamedTuple):
    """Who sends requests. `str(principal)` is the form of ACLs: `User:name`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER = "User"
ANONYMOUS = Principal(USER, "ANONYMOUS")


class Session:
    """What handlers may know of the peer.

    The principal is the subject of the peer's certificate, or anonymous. A login on the connection (SASL) replaces it.
    """

    __slots__ = ("_channel", "_mapper", "_principal", "host", "is_inter_broker", "is_only_for_brokers", "listener")

    def __init__(
        self,
        channel: Channel,
        listener: str,
        mapper: PrincipalMapper,
        *,
        is_inter_broker: bool,
        is_only_for_brokers: bool = False,
    ) -> None:
        self._channel = channel
        self._mapper = mapper
        self._principal: Principal | None = None
        self.host = channel.peer_host
        self.listener = listener
        self.is_inter_broker = is_inter_broker
        """The connection came in on the listener between brokers, where requests of brokers are served."""
        self.is_only_for_brokers = is_only_for_brokers
        """The same, and clients have other listeners."""

    @property
    def principal(self) -> Principal:
        """Known as soon as there is a request: the handshake is complete then."""
        return self._principal or self.name_peer()

    def name_peer(self) -> Principal:
        """By its certificate. Raises NoMatchingRule."""
        subject = self._channel.peer_subject
        self._principal = ANONYMOUS if subject is None else Principal(USER, self._mapper.name_of(subject))
        return self._principal

    def authenticate(self, principal: Principal) -> None:
        """The peer has logged in."""
        self._principal = principal
