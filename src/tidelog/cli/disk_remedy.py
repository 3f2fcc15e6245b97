"""What to do about a log directory that is offline."""

# Core: no clock, no I/O, no await.

FULL = ("No space left on device", "Disk quota exceeded")
"""Texts of ENOSPC and EDQUOT, as brokers report them."""


def disk_remedy(reason: str | None) -> str:
    """A full disk works, and only needs room."""
    is_full = reason is not None and any(text in reason for text in FULL)
    return "make room on the disk" if is_full else "repair the disk"
