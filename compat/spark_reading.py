"""Reads that both formats are asked for."""

import json
from collections.abc import Iterator, Mapping, Sequence

from compat.spark_peers import Question
from compat.spark_topics import (
    APPEND_TIME,
    CODEC_TOPICS,
    COMPACTED,
    EMPTY,
    LARGE,
    NOON_MS,
    SHORTENED,
    SHORTENED_AT,
    STEP_MS,
    TIMES,
)
from compat.written_by_kafka import TRANSACTIONAL
from tests.clients.driver import Isolation

ALL_CODECS = ",".join(CODEC_TOPICS)
FROM_THE_BEGINNING = {"startingOffsets": "earliest"}


def at(second: int) -> int:
    return NOON_MS + STEP_MS * second


def of_times(*numbers: int) -> str:
    """A number for each partition."""
    return json.dumps({TIMES: {str(partition): number for partition, number in enumerate(numbers)}})


EVERYTHING = {
    "subscribe": f"{ALL_CODECS},{TIMES},{APPEND_TIME},{COMPACTED},{EMPTY},{SHORTENED}",
    "includeHeaders": "true",
}
JSON_OFFSETS = {"subscribe": TIMES, "startingOffsets": of_times(17, -2, 99)}
ALL_STARTS = {
    "subscribe": TIMES,
    "startingTimestamp": str(at(50) - 1),
    "startingOffsetsByTimestamp": of_times(at(10), at(20), at(30)),
    "startingOffsets": "earliest",
}
BY_TIMESTAMP = {"subscribe": TIMES, "startingOffsetsByTimestamp": of_times(at(10), at(20), at(150))}
PART_OF_NAMES = {"subscribePattern": "dec-z"}
ASSIGN = {"assign": json.dumps({TIMES: [0, 2], CODEC_TOPICS[1]: [1]})}
GONE = {
    "subscribe": SHORTENED,
    "startingOffsets": json.dumps({SHORTENED: {"0": 1, "1": SHORTENED_AT + 1}}),
    "failOnDataLoss": "false",
}

IN_BATCHES: Mapping[str, Mapping[str, str]] = {
    "all codecs, nulls, tombstones, empty values, headers": {"subscribe": ALL_CODECS, "includeHeaders": "true"},
    "without headers": {"subscribe": CODEC_TOPICS[0]},
    "a compacted topic with holes, cut into tasks": {"subscribe": COMPACTED, "minPartitions": "7"},
    "LogAppendTime": {"subscribe": APPEND_TIME, "includeHeaders": "true"},
    "records of 900 kB": {"subscribe": LARGE},
    "subscribePattern": {"subscribePattern": "codec-(gzip|lz4)"},
    "subscribePattern, a part of names": PART_OF_NAMES,
    "assign": ASSIGN,
    "an empty topic and one shortened at its beginning": {"subscribe": f"{EMPTY},{SHORTENED}"},
    "startingOffsets as JSON": JSON_OFFSETS,
    "startingTimestamp, which wins over the others": ALL_STARTS,
    "startingOffsetsByTimestamp, strategy latest": BY_TIMESTAMP | {"startingOffsetsByTimestampStrategy": "latest"},
    "endingOffsets as JSON": {
        "subscribe": TIMES,
        "startingOffsets": of_times(-2, 5, 0),
        "endingOffsets": of_times(17, 199, -1),
    },
    "endingTimestamp": {"subscribe": TIMES, "endingTimestamp": str(at(150))},
    "endingTimestamp, after all records": {"subscribe": TIMES, "endingTimestamp": str(at(5_000))},
    "endingOffsetsByTimestamp": {"subscribe": TIMES, "endingOffsetsByTimestamp": of_times(at(10), at(250), at(30))},
    "minPartitions": {"subscribe": TIMES, "minPartitions": "11"},
    "maxRecordsPerPartition": {"subscribe": TIMES, "maxRecordsPerPartition": "70"},
    "failOnDataLoss=false, a start before the beginning": GONE,
}

IN_STREAMS: Mapping[str, Mapping[str, str]] = {
    "all these topics, maxOffsetsPerTrigger": EVERYTHING | {"maxOffsetsPerTrigger": "3000"},
    "a compacted topic with holes, minPartitions, maxOffsetsPerTrigger": {
        "subscribe": COMPACTED,
        "minPartitions": "3",
        "maxOffsetsPerTrigger": "900",
    },
    "subscribePattern, a part of names": PART_OF_NAMES,
    "assign": ASSIGN,
    "startingOffsets as JSON": JSON_OFFSETS,
    "startingTimestamp, which wins over the others": ALL_STARTS,
    "startingOffsetsByTimestamp, strategy latest": BY_TIMESTAMP | {"startingOffsetsByTimestampStrategy": "latest"},
    "minOffsetsPerTrigger, more than there is": {
        "subscribe": TIMES,
        "minOffsetsPerTrigger": "100000",
        "maxTriggerDelay": "1s",
    },
    "failOnDataLoss=false, a start before the beginning": GONE,
}


def questions() -> Iterator[Question]:
    for title, options in IN_BATCHES.items():
        yield Question(title, options)
    for title, options in IN_STREAMS.items():
        yield Question(title, {**FROM_THE_BEGINNING, **options}, is_stream=True)


def questions_of_transactions() -> Iterator[Question]:
    isolations: Sequence[Isolation] = ("read_uncommitted", "read_committed")
    for isolation in isolations:
        options = {"subscribe": TRANSACTIONAL, "kafka.isolation.level": isolation, **FROM_THE_BEGINNING}
        yield Question(f"transactions, {isolation}", options)
        yield Question(f"transactions, {isolation}", options | {"maxOffsetsPerTrigger": "1500"}, is_stream=True)
