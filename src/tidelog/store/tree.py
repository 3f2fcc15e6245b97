"""Semantics of store operations, shared by the SQLite and in-memory stores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

from tidelog.store.interface import (
    ANY_VERSION,
    NO_OWNER,
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
    Result,
    Set,
    WatchEvent,
    WatchKind,
)

ROOT = "/"


@dataclass(frozen=True, slots=True)
class StoredNode:
    data: bytes
    version: int
    created_id: int
    modified_id: int
    owner: int
    child_version: int
    """Counts added and removed children; also numbers sequential children."""

    def as_node(self) -> Node:
        return Node(self.data, self.version, self.created_id, self.modified_id, self.owner)


ROOT_NODE = StoredNode(b"", 0, 0, 0, NO_OWNER, 0)


class NodeTable(Protocol):
    """Nodes by path. The table itself undoes the changes of a failed sequence of operations."""

    def find(self, path: str) -> StoredNode | None: ...

    def put(self, path: str, node: StoredNode) -> None: ...

    def remove(self, path: str) -> None: ...

    def has_children(self, path: str) -> bool: ...


class Outcome(NamedTuple):
    results: list[Result]
    events: list[WatchEvent]


@lru_cache(maxsize=4096)  # a controller reads the same nodes again and again
def check_path(path: str) -> None:
    parts = path.split("/")
    if not path.startswith(ROOT) or (path != ROOT and any(part in ("", ".", "..") for part in parts[1:])):
        raise ValueError(f"not a path of a node: {path!r}")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def perform(table: NodeTable, operations: Sequence[Operation], session_id: int, transaction_id: int) -> Outcome:
    """Executes the operations in order; the first one that fails raises."""
    outcome = Outcome([], [])
    for operation in operations:
        check_path(operation.path)
        match operation:
            case Create():
                _create(table, operation, session_id, transaction_id, outcome)
            case Set():
                _set(table, operation, transaction_id, outcome)
            case Delete():
                _delete(table, operation, outcome)
            case Check():
                _existing(table, operation.path, operation.version)
                outcome.results.append(None)
    return outcome


def remove_owned(table: NodeTable, paths: Iterable[str]) -> list[WatchEvent]:
    """Deletes the ephemeral nodes of a session."""
    outcome = Outcome([], [])
    for path in paths:
        _delete(table, Delete(path), outcome)
    return outcome.events


def _create(table: NodeTable, operation: Create, session_id: int, transaction_id: int, outcome: Outcome) -> None:
    parent_path = parent_of(operation.path)
    parent = table.find(parent_path)
    if parent is None:
        raise NoNode(parent_path)
    if parent.owner != NO_OWNER:
        raise NoChildrenForEphemerals(parent_path)
    path = f"{operation.path}{parent.child_version:010d}" if operation.sequential else operation.path
    if table.find(path) is not None:
        raise NodeExists(path)
    owner = session_id if operation.ephemeral else NO_OWNER
    table.put(path, StoredNode(operation.data, 0, transaction_id, transaction_id, owner, 0))
    _count_child(table, parent_path, parent, outcome)
    outcome.events.append(WatchEvent(WatchKind.CREATED, path))
    outcome.results.append(path)


def _set(table: NodeTable, operation: Set, transaction_id: int, outcome: Outcome) -> None:
    node = _existing(table, operation.path, operation.version)
    changed = StoredNode(
        operation.data, node.version + 1, node.created_id, transaction_id, node.owner, node.child_version
    )
    table.put(operation.path, changed)
    outcome.events.append(WatchEvent(WatchKind.CHANGED, operation.path))
    outcome.results.append(changed.as_node())


def _delete(table: NodeTable, operation: Delete, outcome: Outcome) -> None:
    _existing(table, operation.path, operation.version)
    if table.has_children(operation.path):
        raise NotEmpty(operation.path)
    table.remove(operation.path)
    parent_path = parent_of(operation.path)
    parent = table.find(parent_path)
    assert parent is not None, f"{operation.path} had no parent"
    _count_child(table, parent_path, parent, outcome)
    outcome.events.append(WatchEvent(WatchKind.DELETED, operation.path))
    outcome.results.append(None)


def _existing(table: NodeTable, path: str, version: int) -> StoredNode:
    node = table.find(path)
    if node is None:
        raise NoNode(path)
    if version not in (ANY_VERSION, node.version):
        raise BadVersion(path)
    return node


def _count_child(table: NodeTable, path: str, parent: StoredNode, outcome: Outcome) -> None:
    table.put(path, replace(parent, child_version=parent.child_version + 1))
    outcome.events.append(WatchEvent(WatchKind.CHILDREN_CHANGED, path))
