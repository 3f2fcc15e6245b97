"""Reader for the checkpoint of a streaming query: the offsets of its batches. Only Spark writes these files.

`offsets/7` has the end offsets of batch 7 for each source and is written before the batch; `commits/7` after it.
"""

import json
from collections.abc import Iterable

from pyarrow.fs import FileSelector

from tidelog.pipelines.tables.files import filesystem_of
from tidelog.spark.offset_json import BadOffsets, Offsets, Positions, TopicIds, from_dict

VERSION = "v1"
NO_OFFSET_YET = "-"
LINES_BEFORE_SOURCES = 2
"""The version and the batch metadata."""


class BadCheckpoint(Exception):
    """The checkpoint has no usable offsets; the message says why."""


class QueryCheckpoint:
    def __init__(self, location: str) -> None:
        self._location = location
        self._filesystem, self._directory = filesystem_of(location)

    def query_id(self) -> str:
        try:
            return str(json.loads(self._read("metadata"))["id"])
        except FileNotFoundError:
            raise BadCheckpoint(f"no checkpoint in {self._location}: run the pipeline first") from None
        except (ValueError, KeyError, TypeError):
            raise BadCheckpoint(f"the checkpoint in {self._location} is damaged: its query has no id") from None

    def last_committed(self) -> int | None:
        """The last completed batch."""
        return self._last("commits")

    def last_planned(self) -> int | None:
        """The last batch whose end offsets are stored. After a crash it runs again, with the same end offsets."""
        return self._last("offsets")

    def end_of(self, batch_id: int) -> Positions:
        try:
            return ends_in(self._read(f"offsets/{batch_id}").decode())
        except FileNotFoundError:
            raise BadCheckpoint(
                f"the checkpoint in {self._location} does not have batch {batch_id}, which the table holds: it is an "
                "older copy, or the checkpoint of another query; restore the latest"
            ) from None

    def _last(self, kind: str) -> int | None:
        found = self._filesystem.get_file_info(FileSelector(f"{self._directory}/{kind}", allow_not_found=True))
        return max((int(file.base_name) for file in found if file.base_name.isdecimal()), default=None)

    def _read(self, name: str) -> bytes:
        with self._filesystem.open_input_stream(f"{self._directory}/{name}", compression=None) as stream:
            return bytes(stream.read())


def ends_in(text: str) -> Positions:
    """End offsets of a batch in all sources, from a file of `offsets/`."""
    lines = text.splitlines()
    if not lines or lines[0] != VERSION:
        raise BadCheckpoint(f"unknown checkpoint format: {lines[0] if lines else 'empty'}")
    return together(map(_ends_of_source, (line for line in lines[LINES_BEFORE_SOURCES:] if line != NO_OFFSET_YET)))


def _ends_of_source(line: str) -> Positions:
    try:
        return from_dict(json.loads(line))
    except (BadOffsets, ValueError, AttributeError, TypeError):
        raise BadCheckpoint(
            "the query has a streaming source that is not a topic; only topics can be replayed"
        ) from None


def together(sources: Iterable[Positions]) -> Positions:
    """Positions of several sources merged. A topic that two sources read must have the same offsets in both."""
    offsets: Offsets = {}
    topic_ids: TopicIds = {}
    for found in sources:
        for key, end in found.offsets.items():
            if offsets.setdefault(key, end) != end:
                raise BadCheckpoint(f"{key} is read by two sources, up to offset {offsets[key]} and up to {end}")
        topic_ids |= found.topic_ids
    return Positions(offsets, topic_ids)
