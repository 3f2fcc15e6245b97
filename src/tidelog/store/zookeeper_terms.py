"""Translation between ZooKeeper and the store interface: errors, nodes, events, addresses, limits."""

from collections.abc import Iterator, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import ZnodeStat

from tidelog.store.interface import (
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    RequestTooLarge,
    Result,
    SessionExpired,
    Set,
    StoreError,
    StoreUnavailable,
    WatchKind,
)
from tidelog.store.tree import ROOT, StoredNode, check_path
from tidelog.store.zookeeper_acls import acls_of

MAX_REQUEST_BYTES = 1_048_575
"""ZooKeeper's default of jute.maxbuffer; a larger request would close the connection."""
OPERATION_OVERHEAD_BYTES = 64

ERRORS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.SessionExpiredError: SessionExpired,
    kazoo_errors.ConnectionLoss: StoreUnavailable,
    kazoo_errors.ConnectionClosedError: StoreUnavailable,
    kazoo_errors.OperationTimeoutError: StoreUnavailable,
}
REFUSALS: dict[type[Exception], str] = {
    kazoo_errors.NoAuthError: "its ACL is for another user than the one of this broker's login",
    kazoo_errors.SessionClosedRequireSaslError: (
        "the server serves only those that log in; name a JAAS file in java.security.auth.login.config"
    ),
    kazoo_errors.InvalidACLError: "zookeeper.set.acl=true needs a login, and the server knows of none here",
}
ROLLED_BACK_ERRORS = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""Results of the operations before and after the one that failed."""

KINDS = {
    "CREATED": WatchKind.CREATED,
    "CHANGED": WatchKind.CHANGED,
    "DELETED": WatchKind.DELETED,
    "CHILD": WatchKind.CHILDREN_CHANGED,
}


def parse_connect(connect: str) -> tuple[str, str]:
    """Hosts, and the chroot as a path prefix."""
    hosts, slash, chroot = connect.partition("/")
    root = slash + chroot.rstrip("/") if chroot else ""
    try:
        check_path(root or ROOT)
    except ValueError as error:
        raise StoreError("", f"zookeeper.connect={connect}: {error}") from error
    return hosts, root


class Chroot:
    """Path prefix of all nodes of one cluster; empty without a chroot."""

    def __init__(self, prefix: str, *, sets_acls: bool = False) -> None:
        self._prefix = prefix
        self.sets_acls = sets_acls

    @property
    def prefix(self) -> str:
        return self._prefix

    def full(self, path: str) -> str:
        return path if not self._prefix else self._prefix + path.rstrip("/")

    def relative(self, full_path: str) -> str:
        return full_path[len(self._prefix) :]

    def ancestors(self) -> Iterator[str]:
        """The nodes of the prefix itself, parents before children."""
        parts = self._prefix.split("/")[1:]
        return ("/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1))

    def add(self, transaction: Any, operation: Operation) -> None:
        """Add an operation to kazoo's transaction."""
        path = self.full(operation.path)
        match operation:
            case Create():
                acl = acls_of(operation.path, is_secure=self.sets_acls)
                transaction.create(path, operation.data, acl, operation.ephemeral, operation.sequential)
            case Set():
                transaction.set_data(path, operation.data, operation.version)
            case Delete():
                transaction.delete(path, operation.version)
            case Check():
                transaction.check(path, operation.version)

    def result(self, operation: Operation, response: Any) -> Result:
        """Result of an operation from kazoo's response to it."""
        match operation:
            case Create():
                return self.relative(str(response))
            case Set():
                return stored_node(operation.data, response).as_node()
            case _:
                return None


def stored_node(data: bytes | None, stat: ZnodeStat) -> StoredNode:
    """Apache Kafka creates nodes without data, which ZooKeeper distinguishes from empty data."""
    return StoredNode(data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner, stat.cversion)


def nodes(found: list[tuple[bytes, ZnodeStat] | None]) -> list[Node | None]:
    return [None if each is None else stored_node(*each).as_node() for each in found]


def node_or_none(found: Node | BaseException) -> Node | None:
    if isinstance(found, kazoo_errors.NoNodeError):
        return None
    if isinstance(found, BaseException):
        raise found
    return found


def translated(error: Exception, path: str) -> StoreError:
    if (refusal := REFUSALS.get(type(error))) is not None:
        return StoreError(path, f"ZooKeeper refuses access: {refusal}")
    error_class = ERRORS.get(type(error))
    return error_class(path) if error_class else StoreError(path, f"ZooKeeper answered {error!r}")


def check_size(operations: Sequence[Operation]) -> None:
    size = sum(
        OPERATION_OVERHEAD_BYTES + len(each.path) + len(each.data if isinstance(each, Create | Set) else b"")
        for each in operations
    )
    if size > MAX_REQUEST_BYTES:
        raise RequestTooLarge(
            operations[0].path,
            f"{len(operations)} operations have about {size} bytes, but ZooKeeper accepts {MAX_REQUEST_BYTES}"
            " bytes per request (jute.maxbuffer)",
        )
