"""Owners of files and processes, for messages to a user who is not allowed to use them."""

import os
import pwd


def owner_of(path: str) -> str:
    """Name of the user, or the number if it has no name."""
    try:
        user_id = os.stat(path).st_uid
    except OSError:
        return "unknown"
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
