"""Transactional ids of a query: unique to its checkpoint, and stable as long as the checkpoint exists.

Spark gives a sink's driver neither the query id nor the batch id. It does pass the option `checkpointLocation`, and
the query writes its id to the checkpoint first. tests/spark/test_order_of_calls.py checks that PySpark still does.
"""

import json
import os
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.spark.options.query import OptionError, WriteOptions
from tidelog.spark.session_directory import is_deleted_with_session, relative_path_sentence

METADATA = "metadata"
LOCAL_SCHEMES = ("", "file")


class QueryName(NamedTuple):
    name: str
    query_id: str | None = None
    """Set if the name is derived from it; tasks compare it with theirs."""


def stream_name(options: WriteOptions) -> QueryName:
    """Raises OptionError if the query id is not available."""
    if options.transactional_id is not None:
        return QueryName(options.transactional_id)
    if options.checkpoint is None:
        raise OptionError(
            "Option 'checkpointLocation' is missing, which exactly-once delivery of a stream needs: set it for"
            f" the query itself, not for the whole session; {_REMEDIES}"
        )
    if is_deleted_with_session() and not options.checkpoint.startswith("/") and not urlsplit(options.checkpoint).scheme:
        raise OptionError(relative_path_sentence(f"checkpointLocation = '{options.checkpoint}'"))
    query_id = _query_id(options.checkpoint)
    return QueryName(f"spark-{query_id}", query_id)


_REMEDIES = "or set 'kafka.transactional.id' to a name used only for this checkpoint, or 'delivery' to 'at-least-once'"


def _query_id(checkpoint: str) -> str:
    try:
        return str(json.loads(_read(checkpoint))["id"])
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise OptionError(
            f"The sink cannot read the checkpoint at {checkpoint!r} ({error}), which has the id of its query:"
            f" {_REMEDIES.removeprefix('or ')}"
        ) from error


def _read(checkpoint: str) -> bytes:
    address = urlsplit(checkpoint)
    if address.scheme in LOCAL_SCHEMES:
        directory = checkpoint if address.scheme == "" else unquote(address.path)
        with open(os.path.join(directory, METADATA), "rb") as file:
            return file.read()
    from pyarrow.fs import FileSystem

    filesystem, path = FileSystem.from_uri(checkpoint)
    with filesystem.open_input_stream(f"{path}/{METADATA}") as stream:
        return bytes(stream.read())
