"""How far a query has come, read from its checkpoint: files of Spark's that only its query writes.

`offsets/7` says where batch 7 ends in each source, and is written before the batch; `commits/7` after it.
"""

import json
from collections.abc import Iterable

from pyarrow.fs import FileSelector

from tidelog.pipelines.tables.files import filesystem_of
from tidelog.spark.offsets import BadOffsets, Offsets, Positions, TopicIds, from_dict

VERSION = "v1"
NO_OFFSET_YET = "-"
LINES_BEFORE_SOURCES = 2
"""The version, and what Spark writes down about the batch."""


class BadCheckpoint(Exception):
    """The checkpoint does not say how far its query has come; the sentence says why."""


class QueryCheckpoint:
    def __init__(self, location: str) -> None:
        self._location = location
        self._filesystem, self._directory = filesystem_of(location)

    def query_id(self) -> str:
        try:
            return str(json.loads(self._read("metadata"))["id"])
        except FileNotFoundError:
            raise BadCheckpoint(f"there is no checkpoint in {self._location}: run the pipeline first") from None
        except (ValueError, KeyError, TypeError):
            raise BadCheckpoint(f"the checkpoint in {self._location} is damaged: its query has no id") from None

    def last_committed(self) -> int | None:
        """The last batch that was carried out."""
        return self._last("commits")

    def last_planned(self) -> int | None:
        """The last batch whose end is written down; after a crash it is carried out again, to the same end."""
        return self._last("offsets")

    def end_of(self, batch_id: int) -> Positions:
        try:
            return ends_in(self._read(f"offsets/{batch_id}").decode())
        except FileNotFoundError:
            raise BadCheckpoint(
                f"the checkpoint in {self._location} does not know batch {batch_id}, which the table holds: it is an "
                "older copy, or another one; restore the latest"
            ) from None

    def _last(self, kind: str) -> int | None:
        found = self._filesystem.get_file_info(FileSelector(f"{self._directory}/{kind}", allow_not_found=True))
        return max((int(file.base_name) for file in found if file.base_name.isdecimal()), default=None)

    def _read(self, name: str) -> bytes:
        with self._filesystem.open_input_stream(f"{self._directory}/{name}", compression=None) as stream:
            return bytes(stream.read())


def ends_in(text: str) -> Positions:
    """The ends of a batch in all its sources, from what Spark wrote down of it."""
    lines = text.splitlines()
    if not lines or lines[0] != VERSION:
        raise BadCheckpoint(f"the checkpoint is of a kind that is not known here: {lines[0] if lines else 'empty'}")
    return together(map(_ends_of_source, (line for line in lines[LINES_BEFORE_SOURCES:] if line != NO_OFFSET_YET)))


def _ends_of_source(line: str) -> Positions:
    try:
        return from_dict(json.loads(line))
    except (BadOffsets, ValueError, AttributeError, TypeError):
        raise BadCheckpoint(
            "a source that is no topic is followed as a stream; only what was read from topics can be read again"
        ) from None


def together(sources: Iterable[Positions]) -> Positions:
    """Those of several sources as one. A topic that two of them read must have been read equally far by both."""
    offsets: Offsets = {}
    topic_ids: TopicIds = {}
    for found in sources:
        for key, end in found.offsets.items():
            if offsets.setdefault(key, end) != end:
                raise BadCheckpoint(f"{key} is read twice, up to {offsets[key]} and up to {end}")
        topic_ids |= found.topic_ids
    return Positions(offsets, topic_ids)
