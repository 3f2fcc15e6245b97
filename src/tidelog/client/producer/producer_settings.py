"""Settings of a producer: acks, batching, buffering and timeouts."""

from typing import NamedTuple

from tidelog.protocol.compression import Codec

ACKS_ALL = -1


class ProducerSettings(NamedTuple):
    acks: int = ACKS_ALL
    """0: no acknowledgement; 1: the leader; -1: all in-sync replicas."""
    linger_s: float = 0.005
    """Time that a batch waits for more records."""
    batch_bytes: int = 256 * 1024
    """Uncompressed size of a batch; below max.message.bytes of brokers (1 MiB)."""
    compression: Codec = Codec.NONE
    max_buffered_bytes: int = 32 * 1024 * 1024
    """Buffered bytes above which `send` waits for acknowledgements."""
    delivery_timeout_s: float = 120.0
    """Time from the call to the acknowledgement, with all retries."""
    request_timeout_s: float = 30.0
    metadata_timeout_s: float = 60.0
    """Maximum wait for the metadata of a topic."""
    may_create_topics: bool = True

    @property
    def is_idempotent(self) -> bool:
        """Idempotence needs acks=all, as in Kafka."""
        return self.acks == ACKS_ALL
