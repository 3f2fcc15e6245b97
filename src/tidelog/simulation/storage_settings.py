"""Storage settings of a simulated run: sizes of segments and indexes, delays of deletions, intervals of checkpoints.

They are broker settings, so that they apply to every topic without a setting of its own, internal ones included.
"""

from dataclasses import asdict, dataclass

from tidelog.simulation.drawing import Draw

CHOICES: dict[str, tuple[int | None, ...]] = {
    "log_segment_bytes": (None, 350, 800, 2500),
    "log_index_interval_bytes": (None, 0, 150, 1000),
    "log_index_size_max_bytes": (None, None, 24, 48, 120),
    "log_roll_jitter_ms": (None, 1000),
    "log_segment_delete_delay_ms": (None, 0, 1500),
    "log_retention_check_interval_ms": (None, 1000),
    "log_flush_scheduler_interval_ms": (None, None, 1200),
    "log_flush_offset_checkpoint_interval_ms": (None, 500),
    "log_flush_start_offset_checkpoint_interval_ms": (None, 700),
    "replica_high_watermark_checkpoint_interval_ms": (None, 1000),
}
"""None is the default, with which a run writes one segment, deletes no file and writes few checkpoints.

A topic cannot set segments as small as these: a batch that is too large is divided by its producer. Segments of
internal topics have their own size, and are rolled when an index is full.
"""
DEFAULTS_ONE_IN = 2


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Named as the broker's settings; None is the default."""

    log_segment_bytes: int | None = None
    log_index_interval_bytes: int | None = None
    log_index_size_max_bytes: int | None = None
    log_roll_jitter_ms: int | None = None
    log_segment_delete_delay_ms: int | None = None
    log_retention_check_interval_ms: int | None = None
    log_flush_scheduler_interval_ms: int | None = None
    log_flush_offset_checkpoint_interval_ms: int | None = None
    log_flush_start_offset_checkpoint_interval_ms: int | None = None
    replica_high_watermark_checkpoint_interval_ms: int | None = None

    def broker_settings(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @property
    def summary(self) -> str:
        found = (f"{name.replace('_', '.')}={value}" for name, value in self.broker_settings().items())
        return ", ".join(found) or "defaults"


def draw_storage(draw: Draw) -> StorageSettings:
    if draw.below(DEFAULTS_ONE_IN) == 0:
        return StorageSettings()
    return StorageSettings(**{name: draw.one_of(values) for name, values in CHOICES.items()})
