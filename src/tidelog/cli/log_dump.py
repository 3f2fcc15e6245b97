"""Contents of one file of a log directory, as lines of text and as JSON."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidelog.cli.log_reading import (
    CHECKPOINT_SUFFIX,
    PROPERTY_FILES,
    SUFFIXES,
    Rest,
    StoredBatch,
    base_offset_of,
    batches_in,
    checkpoint_rows,
    offset_index,
    producers_in,
    time_index,
    transaction_index,
)
from tidelog.cli.record_format import readable
from tidelog.errors import CorruptMessage
from tidelog.protocol.compression import Codec
from tidelog.protocol.record_batch import crc_matches
from tidelog.protocol.records import Record, read_end_marker, records_of
from tidelog.storage.producer_snapshots import SNAPSHOT_SUFFIX
from tidelog.storage.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

Entry = Mapping[str, Any]


def is_dumped(path: Path) -> bool:
    is_segment_file = path.suffix in SUFFIXES and base_offset_of(path) is not None
    return is_segment_file or path.name.endswith(CHECKPOINT_SUFFIX) or path.name in PROPERTY_FILES


def entries_of(path: Path, *, with_records: bool) -> Iterator[Entry]:
    """One mapping for each batch, record, index entry, producer or line. Raises what the storage raises on damage."""
    match path.suffix:
        case suffix if suffix == LOG_SUFFIX:
            yield from _batches(path, with_records=with_records)
        case suffix if suffix == OFFSET_INDEX_SUFFIX:
            yield from ({"offset": each.offset, "position": each.value} for each in offset_index(path))
        case suffix if suffix == TIME_INDEX_SUFFIX:
            yield from ({"timestamp": each.value, "offset": each.offset} for each in time_index(path))
        case suffix if suffix == TRANSACTION_INDEX_SUFFIX:
            yield from (each._asdict() for each in transaction_index(path))
        case suffix if suffix == SNAPSHOT_SUFFIX:
            yield from _producers(path)
        case _ if path.name.endswith(CHECKPOINT_SUFFIX):
            yield from checkpoint_rows(path)
        case _:
            yield from ({"line": line} for line in path.read_text(errors="backslashreplace").splitlines())


def _batches(path: Path, *, with_records: bool) -> Iterator[Entry]:
    for each in batches_in(path):
        if isinstance(each, Rest):
            yield {"position": each.position, "size_bytes": each.size_bytes, "error": "not a whole batch"}
            return
        yield _batch(each)
        if with_records:
            yield from _records(each)


def is_damage(entry: Entry) -> bool:
    return "error" in entry or entry.get("is_valid") is False


def _batch(batch: StoredBatch) -> Entry:
    header = batch.header
    return {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "leader_epoch": header.leader_epoch,
        "timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "append" if header.has_log_append_time else "create",
        "codec": _codec(header.compression),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "crc": header.crc,
        "is_valid": crc_matches(batch.data, header),
    }


def _codec(number: int) -> str:
    try:
        return Codec(number).name.lower()
    except ValueError:
        return str(number)


def _records(batch: StoredBatch) -> Iterator[Entry]:
    try:
        if batch.header.is_control:
            marker = read_end_marker(batch.data)
            text = "unknown control record" if marker is None else marker.control_type.name.lower()
            yield {"offset": batch.header.base_offset, "control": text}
            return
        yield from (_record(each) for each in records_of(batch.data))
    except CorruptMessage as error:
        yield {"error": error.message}


def _record(record: Record) -> Entry:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        **readable("key", record.key),
        **readable("value", record.value),
        "headers": [{"key": name, **readable("value", value)} for name, value in record.headers],
    }


def _producers(path: Path) -> Iterator[Entry]:
    for state in producers_in(path).by_id.values():
        last = state.batches[-1] if state.batches else None
        yield {
            "producer_id": state.producer_id,
            "producer_epoch": state.epoch,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "transaction_first_offset": None if state.transaction_first_offset < 0 else state.transaction_first_offset,
        }


def line_of(entry: Entry) -> str:
    """`base_offset=0 last_offset=4 ...`; a record is indented below its batch."""
    indent = "  " if "offset" in entry and ("value" in entry or "value_base64" in entry or "control" in entry) else ""
    if set(entry) == {"line"}:
        return str(entry["line"])
    shown = {key: value for key, value in entry.items() if not (key == "headers" and not value)}
    return indent + " ".join(f"{key}={_text(value)}" for key, value in shown.items())


def _text(value: object) -> str:
    if isinstance(value, str):
        return value if value.isprintable() and " " not in value and value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)
