"""Client settings of a query, from its `kafka.*` options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.client.consumer.consumer_settings import READ_UNCOMMITTED
from tidelog.client.producer.producer_settings import ACKS_ALL
from tidelog.config.client import NO_SECURITY, BadClientSettings, ClientSecurity, client_security
from tidelog.config.config_providers import SUPPORTED
from tidelog.protocol.compression import Codec
from tidelog.spark.options.kafka_settings import KAFKA_SETTINGS, PREFIX, REJECTED, Side, is_security_setting
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
    security: ClientSecurity = NO_SECURITY
    """TLS and login, with placeholders instead of secrets: each process resolves them when it connects."""


def client_settings(given: Mapping[str, str], side: Side, **others: Any) -> ClientSettings:
    """From Kafka's client settings, by name without the prefix; `others` override them."""
    known = {setting.name: setting for setting in KAFKA_SETTINGS if setting.is_for(side)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        reject(name)
        if name in known:
            value = parsed(PREFIX + name, known[name].parse, text)
            values |= dict.fromkeys(known[name].fields, value)
    return ClientSettings(**(values | others), security=_security(given))


def _security(given: Mapping[str, str]) -> ClientSecurity:
    """Raises OptionError. Secrets must not be in options, which Spark shows and stores."""
    try:
        security = client_security({name: text for name, text in given.items() if is_security_setting(name)})
    except BadClientSettings as error:
        raise OptionError(f"Options '{PREFIX}...': {error}") from None
    literal = security.literal_secrets()
    if literal:
        raise OptionError(
            f"Option '{PREFIX}{literal[0]}' has a secret in it, which Spark would show in its plans; use {SUPPORTED}"
        )
    return security


def reject(name: str) -> None:
    """Raises OptionError if the setting is not supported."""
    if name in REJECTED:
        raise OptionError(f"Option '{PREFIX}{name}' is not supported: {REJECTED[name]}")
