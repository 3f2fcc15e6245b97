"""Audit log: failed logins and changes of users, as lines of a logger of their own that can go to a file.

Lines about peers are limited, so that nobody can fill the log.
"""

import logging
import re

from tidelog.server.peer_error_log import PeerErrorLog

AUDIT_LOGGER = "tidelog.audit"
audit_logger = logging.getLogger(AUDIT_LOGGER)

MAX_SHOWN_CHARACTERS = 250
_SPACE_BEFORE_KEY = re.compile(r" (?=[a-z][a-z0-9_]*=)")


class AuditLog:
    def __init__(self) -> None:
        self._limit = PeerErrorLog(audit_logger)

    def login_failed(self, *, host: str, listener: str, mechanism: str, user: str, reason: str) -> None:
        if self._limit.should_log(host):
            audit_logger.warning(
                "login failed peer=%s listener=%s mechanism=%s user=%s reason=%s",
                host,
                listener,
                mechanism or "-",
                shown(user) if user else "-",
                shown(reason),
            )


def shown(text: str) -> str:
    """Text of a client in one line, without control characters, limited in length.

    It cannot be taken for further `key=value` pairs of the line.
    """
    limited = text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."
    return _SPACE_BEFORE_KEY.sub(r"\\x20", ascii(limited)[1:-1])
