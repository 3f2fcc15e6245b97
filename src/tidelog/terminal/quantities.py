"""Sizes and durations as text for people."""

_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def size_text(size_bytes: float) -> str:
    """`12 B`, `1.5 MB`."""
    for name, unit in _UNITS:
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes:.0f} B"


def duration_text(seconds: float) -> str:
    """`45 s`, `12 min 5 s`, `3 h 20 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
