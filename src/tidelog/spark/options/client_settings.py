"""Client settings of a query, from its `kafka.*` options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.client.consumer.consumer_settings import READ_UNCOMMITTED
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.protocol.compression import Codec
from tidelog.spark.options.kafka_settings import KAFKA_SETTINGS, PREFIX, REJECTED, SECURE, Side, is_secure
from tidelog.spark.options.values import OptionError, parsed

FETCH_BYTES = 4 * 1024 * 1024
BATCH_BYTES = 512 * 1024
TRANSACTION_TIMEOUT_MS = 900_000
"""The brokers' default of transaction.max.timeout.ms."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Hashable, so that queries with equal settings share connections; sent to every task."""

    client_id: str = "tidelog-spark"
    client_rack: str = ""
    """Rack of the tasks: they read from a replica there, if brokers allow it (KIP-392)."""
    request_timeout_s: float = 30.0
    timeout_s: float = 120.0
    """How long metadata and offset requests are retried while brokers are unavailable."""
    read_timeout_s: float = 120.0
    """How long a range may make no progress before its reader gives up."""
    fetch_max_bytes: int = FETCH_BYTES
    fetch_max_wait_ms: int = 500
    isolation_level: int = READ_UNCOMMITTED
    group_id: str | None = None
    """Consumer group under which the progress of a stream is published."""
    acks: int = ACKS_ALL
    compression: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    delivery_timeout_s: float = 120.0
    transactional_id: str | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS


def client_settings(given: Mapping[str, str], side: Side, **others: Any) -> ClientSettings:
    """From Kafka's client settings, by name without the prefix; `others` override them."""
    known = {setting.name: setting for setting in KAFKA_SETTINGS if setting.is_for(side)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        reject(name, text)
        if name in known:
            value = parsed(PREFIX + name, known[name].parse, text)
            values |= dict.fromkeys(known[name].fields, value)
    return ClientSettings(**(values | others))


def reject(name: str, text: str) -> None:
    """Raises OptionError if the setting is not supported."""
    if name in REJECTED:
        raise OptionError(f"Option '{PREFIX}{name}' is not supported: {REJECTED[name]}")
    if is_secure(name, text):
        raise OptionError(f"Option '{PREFIX}{name}' is not supported: {SECURE}")
