"""Read replica of a partition (KIP-392): the leader, or for some time the replica that the leader prefers.

A replica that failed is avoided for a while: the leader does not know that this client cannot reach it, and would send
the client there again and again.
"""

from tidelog.types import NO_BROKER, BrokerId

PREFERRED_S = 300.0
"""Then the leader is asked again, as Kafka's consumers do after metadata.max.age.ms."""

AVOIDED_S = 30.0


class ReadReplica:
    __slots__ = ("_avoids_until", "_until", "broker_id")

    def __init__(self) -> None:
        self.broker_id: BrokerId = NO_BROKER
        """The preferred replica; NO_BROKER is the leader."""
        self._until = 0.0
        self._avoids_until = 0.0

    @property
    def is_leader(self) -> bool:
        return self.broker_id == NO_BROKER

    def prefer(self, broker_id: BrokerId, now: float) -> None:
        """A leader named this replica."""
        self.broker_id, self._until = broker_id, now + PREFERRED_S

    def is_expired(self, now: float) -> bool:
        return self.broker_id != NO_BROKER and now >= self._until

    def use_leader(self) -> None:
        self.broker_id = NO_BROKER

    def on_failed(self, now: float) -> None:
        """The preferred replica cannot serve this client, or has an error that says nothing about the leader."""
        self.broker_id, self._avoids_until = NO_BROKER, now + AVOIDED_S

    def rack(self, client_rack: str, now: float) -> str:
        """The rack for a fetch; empty while followers are avoided."""
        return client_rack if now >= self._avoids_until else ""
