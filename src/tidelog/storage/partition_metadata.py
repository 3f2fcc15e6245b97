"""partition.metadata: the file in a partition's directory that names the topic's id."""

import logging

from tidelog.runtime.disk import Disk
from tidelog.types import Uuid, uuid_from_text, uuid_text

logger = logging.getLogger(__name__)

PARTITION_METADATA = "partition.metadata"
_VERSION_LINE = "version: 0"
_TOPIC_ID = "topic_id: "


def write_topic_id(disk: Disk, directory: str, topic_id: Uuid) -> None:
    file = disk.open(f"{directory}/{PARTITION_METADATA}", "create")
    file.append(f"{_VERSION_LINE}\n{_TOPIC_ID}{uuid_text(topic_id)}".encode())
    file.close()


def sync_topic_id(disk: Disk, directory: str) -> None:
    """A log that has reached the disk without it could be taken for that of a later topic of the same name."""
    path = f"{directory}/{PARTITION_METADATA}"
    if disk.exists(path):
        file = disk.open(path, "append")
        file.sync()
        file.close()


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """None, and a log line, if the file cannot be understood: the id is then given anew from the topic's metadata."""
    path = f"{directory}/{PARTITION_METADATA}"
    lines = disk.read_file(path).decode("latin-1").splitlines()
    try:
        if len(lines) < 2 or lines[0] != _VERSION_LINE or not lines[1].startswith(_TOPIC_ID):
            raise ValueError("it does not have the two lines it should have")
        return uuid_from_text(lines[1].removeprefix(_TOPIC_ID))
    except ValueError as error:
        logger.warning("damaged file is ignored and will be rewritten path=%s error=%s", path, error)
        return None
