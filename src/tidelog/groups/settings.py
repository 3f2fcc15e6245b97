"""What groups need to know of the broker's settings, under Kafka's names."""

from dataclasses import dataclass, fields

from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import INT_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSettings:
    """The defaults are those of the broker, for tests."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = INT_MAX

    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_session_timeout_ms: int = 45_000

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @classmethod
    def of(cls, settings: BrokerSettings) -> "GroupSettings":
        return cls(**{field.name: getattr(settings, field.name) for field in fields(cls)})
