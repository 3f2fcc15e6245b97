"""How a producer batches, how sure it wants to be, and how long it tries."""

from typing import NamedTuple

from tidelog.protocol.compression import Codec

ACKS_ALL = -1


class ProducerSettings(NamedTuple):
    acks: int = ACKS_ALL
    """0: nobody acknowledges; 1: the leader; -1: all in-sync replicas."""
    linger_s: float = 0.005
    """How long a batch waits for company."""
    batch_bytes: int = 256 * 1024
    """Of records, uncompressed; below the limit that brokers have for a batch, 1 MiB."""
    compression: Codec = Codec.NONE
    max_buffered_bytes: int = 32 * 1024 * 1024
    """Above this, sending waits for acknowledgements."""
    delivery_timeout_s: float = 120.0
    """From the call to the acknowledgement, all attempts together."""
    request_timeout_s: float = 30.0
    metadata_timeout_s: float = 60.0
    """How long to look for a topic that is not there yet."""
    may_create_topics: bool = True

    @property
    def is_idempotent(self) -> bool:
        """Without all acknowledgements a repeated batch could not be told from a lost one."""
        return self.acks == ACKS_ALL
