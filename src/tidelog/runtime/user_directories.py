"""Where programs keep what is theirs, as the desktop standards say it."""

import os


def data_home() -> str:
    """For data that is to stay."""
    return os.path.expanduser(os.environ.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share"))


def cache_home() -> str:
    """For what can be made again."""
    return os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"))
