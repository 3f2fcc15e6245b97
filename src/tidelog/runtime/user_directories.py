"""Data and cache directories of the user (XDG base directories)."""

import os


def data_home() -> str:
    """Directory of permanent data."""
    return os.path.expanduser(os.environ.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share"))


def cache_home() -> str:
    """Directory of data that can be recreated."""
    return os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache"))
