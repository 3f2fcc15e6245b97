"""How far a micro-batch reads, and how what it reads is divided among tasks. Decides; asks nobody."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one micro-batch may take; None: no such limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay_s: float = 900.0
    """After so long a batch is made of fewer than `min_offsets`."""
    max_bytes: int | None = None
