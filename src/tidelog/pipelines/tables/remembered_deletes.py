"""Deletes that a table sink remembers, so that a change that arrives late does not bring a deleted row back.

They are in files beside the table, one for each batch that changed them. The number of the last batch, which the
table's commit has, says which file is valid: a file of a batch that was not committed is ignored and written again.
"""

import hashlib
import os
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, LocalFileSystem

from tidelog.pipelines.tables.change_merge import DELETED_AT
from tidelog.pipelines.tables.files import filesystem_of, sync_path

KEPT_S = 7 * 24 * 3600
"""A change may arrive this much later than the delete of its key."""
_NAME = re.compile(r"deletes-([0-9a-f]{16})-(\d+)\.parquet")


class RememberedDeletes:
    def __init__(self, directory: str, application_id: str) -> None:
        self._filesystem, self._directory = filesystem_of(directory)
        self._owner = hashlib.sha256(application_id.encode()).hexdigest()[:16]

    def load(self, last_batch: int | None) -> pa.Table | None:
        """As of the last batch that the table holds."""
        valid = self._valid_batch(last_batch)
        if valid is None:
            return None
        return pq.read_table(self._path(valid), filesystem=self._filesystem)

    def save(self, deletes: pa.Table, batch_id: int) -> None:
        """Valid once the table has a commit of the batch."""
        self._filesystem.create_dir(self._directory, recursive=True)
        path = self._path(batch_id)
        pq.write_table(deletes, path, filesystem=self._filesystem, compression="zstd")
        if isinstance(self._filesystem, LocalFileSystem):
            sync_path(path)
            sync_path(self._directory)

    def forget_old_files(self, last_batch: int) -> None:
        valid = self._valid_batch(last_batch)
        for batch in self._batches():
            if valid is not None and batch < valid:
                self._filesystem.delete_file(self._path(batch))

    def _valid_batch(self, last_batch: int | None) -> int | None:
        committed = [batch for batch in self._batches() if last_batch is not None and batch <= last_batch]
        return max(committed, default=None)

    def _batches(self) -> list[int]:
        found = self._filesystem.get_file_info(FileSelector(self._directory, allow_not_found=True))
        names = [_NAME.fullmatch(file.base_name) for file in found]
        return [int(name[2]) for name in names if name is not None and name[1] == self._owner]

    def _path(self, batch_id: int) -> str:
        return os.path.join(self._directory, f"deletes-{self._owner}-{batch_id}.parquet")


def without_expired(deletes: pa.Table, now_s: int) -> pa.Table:
    return deletes.filter(pc.greater_equal(deletes[DELETED_AT], now_s - KEPT_S))
