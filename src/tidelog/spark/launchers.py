"""Launcher scripts that Spark starts instead of a program, stored in the user's cache directory."""

import os
import tempfile
from pathlib import Path

from tidelog.runtime.user_directories import cache_home


def cache_directory() -> Path:
    return Path(cache_home(), "tidelog")


def put(path: Path, text: str) -> None:
    """Atomic: several processes may write the same file."""
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)
