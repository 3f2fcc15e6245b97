"""What groups need to know of the broker's settings, under Kafka's names."""

from typing import TypeAlias

from tidelog.config.coordinators import CoordinatorSettings

GroupSettings: TypeAlias = CoordinatorSettings


def offsets_retention_ms(settings: GroupSettings) -> int:
    return settings.offsets_retention_minutes * 60_000
