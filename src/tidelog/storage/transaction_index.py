"""The transaction index of a segment: which transactions that ended in it were aborted."""

import struct
from typing import NamedTuple

from tidelog.runtime.disk import Disk

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the abort marker."""
    last_stable_offset: int
    """What the last stable offset became with the marker: no later entry matters to a reader that ends below it."""


def read_transactions(disk: Disk, path: str) -> list[AbortedTransaction]:
    """The whole entries; a torn one at the end was never finished."""
    contents = disk.read_file(path)
    whole = len(contents) - len(contents) % ENTRY.size
    return [AbortedTransaction(*fields) for _version, *fields in ENTRY.iter_unpack(contents[:whole])]


def append_transaction(disk: Disk, path: str, transaction: AbortedTransaction) -> None:
    file = disk.open(path, "append")
    file.append(ENTRY.pack(VERSION, *transaction))
    file.close()


def write_transactions(disk: Disk, path: str, transactions: list[AbortedTransaction]) -> None:
    """Replace the file; without transactions there is none."""
    disk.remove(path)
    if transactions:
        file = disk.open(path, "create")
        file.append(b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions))
        file.close()
