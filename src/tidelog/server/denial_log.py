"""Denied requests as lines of the audit log, in a logger of their own (`tidelog.audit`), limited in rate."""

from tidelog.authorization.acls import Operation, ResourceType
from tidelog.server.audit_log import audit_logger, shown
from tidelog.server.peer_error_log import PeerErrorLog
from tidelog.server.session import Session

DENIALS_PER_MINUTE = 30
"""Lines for each principal: a client that retries without end must not fill the disk."""


class DenialLog:
    def __init__(self) -> None:
        self._limit = PeerErrorLog(audit_logger, DENIALS_PER_MINUTE)
        self.denied_count = 0

    def denied(
        self, session: Session, client_id: str | None, operation: Operation, resource: ResourceType, name: str
    ) -> None:
        self.denied_count += 1
        principal = str(session.principal)
        if self._limit.should_log(principal):
            audit_logger.warning(
                "denied principal=%s host=%s listener=%s operation=%s resource=%s:%s client_id=%s",
                shown(principal),
                session.host,
                session.listener,
                operation.title,
                resource.title,
                shown(name),
                shown(client_id or ""),
            )
