"""partition.metadata: the file in a partition's directory with the topic id."""

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
    """Sync the file with the log: a log without it could be mistaken for a later topic with the same name."""
    path = f"{directory}/{PARTITION_METADATA}"
    if disk.exists(path):
        file = disk.open(path, "append")
        file.sync()
        file.close()


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """None, with a warning, if the file is malformed: the id is then assigned again from the topic's metadata."""
    path = f"{directory}/{PARTITION_METADATA}"
    lines = disk.read_file(path).decode("latin-1").splitlines()
    try:
        if len(lines) < 2 or lines[0] != _VERSION_LINE or not lines[1].startswith(_TOPIC_ID):
            raise ValueError("expected two lines")
        return uuid_from_text(lines[1].removeprefix(_TOPIC_ID))
    except ValueError as error:
        logger.warning("ignored malformed file, it will be rewritten path=%s error=%s", path, error)
        return None
