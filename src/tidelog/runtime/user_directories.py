"""Data, configuration and cache directories of the user (XDG base directories)."""

import os
from collections.abc import Mapping


def data_home(environment: Mapping[str, str] = os.environ) -> str:
    """Directory of permanent data."""
    return _directory(environment, "XDG_DATA_HOME", ".local", "share")


def config_home(environment: Mapping[str, str] = os.environ) -> str:
    """Directory of configuration."""
    return _directory(environment, "XDG_CONFIG_HOME", ".config")


def cache_home(environment: Mapping[str, str] = os.environ) -> str:
    """Directory of data that can be recreated."""
    return _directory(environment, "XDG_CACHE_HOME", ".cache")


def _directory(environment: Mapping[str, str], variable: str, *default: str) -> str:
    return os.path.expanduser(environment.get(variable) or os.path.join(environment.get("HOME") or "~", *default))
