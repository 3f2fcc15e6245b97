"""Digest of one simulated run: every network frame, store write and disk write, each with its virtual time.

Two versions of the code that give equal digests behaved alike in that run. Log lines, the event log and names of
classes and functions are left out on purpose, so that a rename or a new wording does not change the digest.
"""

import hashlib
from collections.abc import Sequence
from functools import partial

from tidelog.simulation.cluster import SimulatedCluster
from tidelog.store.interface import Check, Create, Delete, Operation, Set
from tidelog.types import BrokerId, Buffer

DIGEST_BYTES = 8


class _Part:
    """Count and hash of the events of one kind, in order."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, head: str, data: Buffer = b"") -> None:
        self.count += 1
        self._hash.update(f"{head} {len(data)}\n".encode())
        self._hash.update(data)

    def text(self) -> str:
        return self._hash.hexdigest()


class RunDigest:
    """One hash each for network, store and disks: the one that differs shows where behaviour changed."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._now = cluster.clock.monotonic
        self._network, self._store, self._disk = _Part(), _Part(), _Part()
        cluster.network.on_sent(self._on_sent)
        cluster.store_state.on_written.append(self._on_stored)
        for machine in cluster.machines.values():
            machine.disk.on_changed.append(partial(self._on_changed, machine.broker_id))

    def text(self) -> str:
        return (
            f"network={self._network.text()} store={self._store.text()} disk={self._disk.text()}"
            f" frames={self._network.count} store_writes={self._store.count} disk_writes={self._disk.count}"
            f" simulated_s={self._now():.6f}"
        )

    def _on_sent(self, source: str, target: str, frames: Sequence[Buffer]) -> None:
        for frame in frames:
            self._network.add(f"{self._now()!r} {source} {target}", frame)

    def _on_stored(self, session_id: int, operations: Sequence[Operation]) -> None:
        for operation in operations:
            head, data = _operation_text(operation)
            self._store.add(f"{self._now()!r} {session_id} {head}", data)

    def _on_changed(self, broker_id: BrokerId, verb: str, path: str, data: Buffer) -> None:
        self._disk.add(f"{self._now()!r} {broker_id} {verb} {path}", data)


def _operation_text(operation: Operation) -> tuple[str, bytes]:
    match operation:
        case Create(path, data, ephemeral, sequential):
            return f"create {path} {ephemeral} {sequential}", data
        case Set(path, data, version):
            return f"set {path} {version}", data
        case Delete(path, version):
            return f"delete {path} {version}", b""
        case Check(path, version):
            return f"check {path} {version}", b""
