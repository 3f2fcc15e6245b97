"""How a Spark query talks to its brokers: what the `kafka.*` options of the query mean to Tidelog's client."""

from dataclasses import dataclass

from tidelog.client.consumer_settings import READ_UNCOMMITTED
from tidelog.client.producer_settings import ACKS_ALL
from tidelog.protocol.compression import Codec

FETCH_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Hashable, so that queries with the same settings can share their connections, and sent to every task."""

    client_id: str = "tidelog-spark"
    request_timeout_s: float = 30.0
    timeout_s: float = 120.0
    """How long to go on trying to learn of topics and offsets while brokers are away."""
    read_timeout_s: float = 120.0
    """How long a range may bring nothing new before its reader gives up."""
    fetch_max_bytes: int = FETCH_BYTES
    fetch_max_wait_ms: int = 500
    isolation_level: int = READ_UNCOMMITTED
    group_id: str | None = None
    """The consumer group that the progress of a stream is published as."""
    acks: int = ACKS_ALL
    compression: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    delivery_timeout_s: float = 120.0
