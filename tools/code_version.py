"""Version of the code that a figure or a finding belongs to."""

import hashlib
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def code_version(*directories: str) -> str:
    """The commit, and a digest of what was changed since in these directories: a page is no part of the code."""
    commit = _git("rev-parse", "--short=10", "HEAD").strip()
    changes = _git("diff", "HEAD", "--", *directories) + _git(
        "ls-files", "--others", "--exclude-standard", *directories
    )
    return f"{commit}-{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else "unknown"
