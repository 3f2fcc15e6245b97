"""Reader for the log of a Delta table: application ids, which `deltalake` does not list."""

import json
from collections.abc import Iterable

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileSelector, FileSystem

from tidelog.pipelines.tables.files import filesystem_of


def applications_of(table: DeltaTable) -> set[str]:
    """From the last checkpoint, which has all of them, and later commits."""
    filesystem, directory = filesystem_of(f"{table.table_uri.rstrip('/')}/_delta_log")
    names = {file.base_name: file.path for file in filesystem.get_file_info(FileSelector(directory))}
    checkpoints = sorted(name for name in names if name.endswith(".checkpoint.parquet"))
    last = checkpoints[-1] if checkpoints else ""
    commits = [path for name, path in names.items() if name.endswith(".json") and name > last.partition(".")[0]]
    found = _of_checkpoint(filesystem, names[last]) if last else set()
    return found.union(*(_of_commit(filesystem, path) for path in commits))


def _of_checkpoint(filesystem: FileSystem, path: str) -> set[str]:
    transactions = pq.read_table(path, columns=["txn"], filesystem=filesystem)["txn"].to_pylist()
    return {transaction["appId"] for transaction in transactions if transaction and transaction["appId"]}


def _of_commit(filesystem: FileSystem, path: str) -> set[str]:
    with filesystem.open_input_stream(path) as stream:
        return set(_named(stream.read().splitlines()))


def _named(actions: Iterable[bytes]) -> Iterable[str]:
    for action in actions:
        if b'"txn"' in action and "txn" in (found := json.loads(action)):
            yield found["txn"]["appId"]
