"""What the transactions of a query are called: a name that stays for as long as its checkpoint, and is nobody else's.

Spark tells a sink's driver neither the query nor the batch. It does hand over the option `checkpointLocation`, and the
query writes its id into the checkpoint before anything else. tests/spark/test_order_of_calls.py holds PySpark to it.
"""

import json
import os
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.spark.options.query import OptionError, WriteOptions

METADATA = "metadata"
LOCAL_SCHEMES = ("", "file")


class QueryName(NamedTuple):
    name: str
    query_id: str | None = None
    """As far as the name depends on it: tasks can tell theirs."""


def stream_name(options: WriteOptions) -> QueryName:
    """Raises OptionError where it cannot be known."""
    if options.transactional_id is not None:
        return QueryName(options.transactional_id)
    if options.checkpoint is None:
        raise OptionError(
            "Option 'checkpointLocation' is missing, and without it no stream can be written exactly once: set it for"
            f" the query itself, not for the whole session; {_WAYS_OUT}"
        )
    query_id = _query_id(options.checkpoint)
    return QueryName(f"spark-{query_id}", query_id)


_WAYS_OUT = (
    "or set 'kafka.transactional.id' to a name that belongs to this checkpoint alone, or 'delivery' to 'at-least-once'"
)


def _query_id(checkpoint: str) -> str:
    try:
        return str(json.loads(_read(checkpoint))["id"])
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise OptionError(
            f"The checkpoint at {checkpoint!r} cannot be read by the sink ({error}), so that it does not know which"
            f" query it writes for: {_WAYS_OUT.removeprefix('or ')}"
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
