"""Text and JSON of `tidelog broker disks`."""

import json

from tidelog.cli.disk_view import as_json, as_text, disks_of
from tidelog.client.network.connection import ConnectionLost
from tidelog.errors import NO_ERROR, KafkaStorageError
from tidelog.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

CURRENT = DescribeLogDirsPartition(partition_index=0, partition_size=2_000_000, offset_lag=0)
FUTURE = DescribeLogDirsPartition(partition_index=0, partition_size=500_000, offset_lag=1_500, is_future_key=True)


def directory(path: str, *partitions: DescribeLogDirsPartition) -> DescribeLogDirsResult:
    topics = [DescribeLogDirsTopic(name="tides", partitions=list(partitions))] if partitions else []
    return DescribeLogDirsResult(
        error_code=NO_ERROR, log_dir=path, topics=topics, total_bytes=10**10, usable_bytes=4 * 10**9
    )


BROKEN = DescribeLogDirsResult(
    error_code=KafkaStorageError.code, log_dir="/broken", offline_reason="[Errno 5] Input/output error"
)
VIEW = disks_of(
    {
        1: DescribeLogDirsResponse(results=[directory("/one", CURRENT), directory("/two", FUTURE), BROKEN]),
        2: ConnectionLost("timed out"),
    }
)


def test_text() -> None:
    assert [line.split() for line in as_text(VIEW)[:4]] == [
        ["BROKER", "DIRECTORY", "STATE", "SIZE", "FREE", "PARTITIONS", "FUTURE", "LOGS"],
        ["1", "/one", "online", "2.0", "MB", "4.0", "GB", "1", "0"],
        ["1", "/two", "online", "500.0", "kB", "4.0", "GB", "0", "1"],
        ["1", "/broken", "OFFLINE", "-", "-", "-", "-"],
    ]
    assert as_text(VIEW)[4:6] == [
        "broker 1: /broken is offline: [Errno 5] Input/output error. Repair the disk, then restart the broker",
        "broker 2 does not answer: timed out",
    ]
    assert as_text(VIEW)[-1].split() == ["1", "tides-0", "/one", "/two", "500.0", "kB", "1,500", "25%"]


def test_json() -> None:
    shown = json.loads(json.dumps(as_json(VIEW)))
    assert [each["state"] for each in shown["directories"]] == ["online", "online", "offline"]
    assert shown["directories"][2]["reason"] == "[Errno 5] Input/output error"
    assert shown["moves"] == [
        {
            "broker": 1,
            "topic": "tides",
            "partition": 0,
            "from": "/one",
            "to": "/two",
            "copied_bytes": 500_000,
            "size_bytes": 2_000_000,
            "lag": 1500,
            "progress": 0.25,
        }
    ]
    assert shown["silent_brokers"] == {"2": "timed out"}
