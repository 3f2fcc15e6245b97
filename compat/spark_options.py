"""Options that a query may be refused for: both formats refuse them, or it is known why only one does."""

import json
from collections.abc import Iterator, Mapping

from compat.spark_peers import OURS, THEIRS, Answer, Peers, Question, Rejected
from compat.spark_reading import at, of_times
from compat.spark_topics import SHORTENED, TIMES

SUBSCRIBED = {"subscribe": TIMES}

ANYWHERE: Mapping[str, Mapping[str, str]] = {
    "no topic": {},
    "subscribe and assign": {"subscribe": TIMES, "assign": json.dumps({TIMES: [0]})},
    "subscribe=''": {"subscribe": ""},
    "assign of no JSON": {"assign": TIMES},
    "assign of a partition that does not exist": {"assign": json.dumps({TIMES: [0, 7]})},
    "a topic that does not exist": {"subscribe": "nowhere"},
    "a pattern that no topic has": {"subscribePattern": "nowhere.*"},
    "a pattern that is none": {"subscribePattern": "codec-("},
    "startingOffsets=first": SUBSCRIBED | {"startingOffsets": "first"},
    "startingOffsets=EARLIEST": SUBSCRIBED | {"startingOffsets": "EARLIEST"},
    "startingOffsets of some partitions": SUBSCRIBED | {"startingOffsets": json.dumps({TIMES: {"0": 3}})},
    "startingOffsets of another topic": SUBSCRIBED | {"startingOffsets": json.dumps({"other": {"0": 3}})},
    "startingOffsets=-3": SUBSCRIBED | {"startingOffsets": of_times(-3, 0, 0)},
    "startingOffsets after the end": SUBSCRIBED | {"startingOffsets": of_times(0, 0, 5_000)},
    "startingOffsets before the beginning": {
        "subscribe": SHORTENED,
        "startingOffsets": json.dumps({SHORTENED: {"0": 1, "1": 1}}),
    },
    "startingOffsetsByTimestamp of some partitions": SUBSCRIBED
    | {"startingOffsetsByTimestamp": json.dumps({TIMES: {"0": at(3)}})},
    "startingTimestamp=yesterday": SUBSCRIBED | {"startingTimestamp": "yesterday"},
    "startingTimestamp=-1": SUBSCRIBED | {"startingTimestamp": "-1"},
    "startingTimestamp after all records": SUBSCRIBED | {"startingTimestamp": str(at(5_000))},
    "startingOffsetsByTimestampStrategy=none": SUBSCRIBED
    | {"startingTimestamp": str(at(5_000)), "startingOffsetsByTimestampStrategy": "none"},
    "minPartitions=0": SUBSCRIBED | {"minPartitions": "0"},
    "maxRecordsPerPartition=0": SUBSCRIBED | {"maxRecordsPerPartition": "0"},
    "includeHeaders=perhaps": SUBSCRIBED | {"includeHeaders": "perhaps"},
    "failOnDataLoss=perhaps": SUBSCRIBED | {"failOnDataLoss": "perhaps"},
    "kafka.auto.offset.reset": SUBSCRIBED | {"kafka.auto.offset.reset": "latest"},
    "kafka.enable.auto.commit": SUBSCRIBED | {"kafka.enable.auto.commit": "true"},
    "kafka.key.deserializer": SUBSCRIBED | {"kafka.key.deserializer": "StringDeserializer"},
    "kafka.value.deserializer": SUBSCRIBED | {"kafka.value.deserializer": "StringDeserializer"},
    "kafka.interceptor.classes": SUBSCRIBED | {"kafka.interceptor.classes": "Spy"},
    "kafka.group.id": SUBSCRIBED | {"kafka.group.id": "readers"},
    "groupIdPrefix": SUBSCRIBED | {"groupIdPrefix": "readers"},
    "kafka.isolation.level=none": SUBSCRIBED | {"kafka.isolation.level": "none"},
    "kafka.request.timeout.ms=soon": SUBSCRIBED | {"kafka.request.timeout.ms": "soon"},
    "kafka.fetch.min.bytes, kafka.max.poll.records": SUBSCRIBED
    | {"kafka.fetch.min.bytes": "10", "kafka.max.poll.records": "100"},
    "kafkaConsumer.pollTimeoutMs, fetchOffset.numRetries, fetchOffset.retryIntervalMs": SUBSCRIBED
    | {"kafkaConsumer.pollTimeoutMs": "9000", "fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "7"},
    "an option that does not exist": SUBSCRIBED | {"startingOffset": "latest"},
    "a setting that Kafka's clients do not have": SUBSCRIBED | {"kafka.fetch.min.byte": "10"},
}

IN_BATCHES: Mapping[str, Mapping[str, str]] = {
    "startingOffsets=latest": SUBSCRIBED | {"startingOffsets": "latest"},
    "startingOffsets=-1": SUBSCRIBED | {"startingOffsets": of_times(0, 0, -1)},
    "endingOffsets=earliest": SUBSCRIBED | {"endingOffsets": "earliest"},
    "endingOffsets=-2": SUBSCRIBED | {"endingOffsets": of_times(-1, -1, -2)},
    "endingOffsets before startingOffsets": SUBSCRIBED
    | {"startingOffsets": of_times(9, 9, 9), "endingOffsets": of_times(10, 10, 3)},
    "endingTimestamp before startingTimestamp": SUBSCRIBED
    | {"startingTimestamp": str(at(50)), "endingTimestamp": str(at(40))},
    "endingOffsets after the end": SUBSCRIBED
    | {"endingOffsets": of_times(-1, -1, 5_000), "kafkaConsumer.pollTimeoutMs": "1000"},
    "maxOffsetsPerTrigger": SUBSCRIBED | {"maxOffsetsPerTrigger": "10"},
    "maxOffsetsPerTrigger=few of a batch": SUBSCRIBED | {"maxOffsetsPerTrigger": "few"},
}

IN_STREAMS: Mapping[str, Mapping[str, str]] = {
    "endingOffsets of a stream": SUBSCRIBED | {"endingOffsets": "latest"},
    "endingTimestamp of a stream": SUBSCRIBED | {"endingTimestamp": str(at(50))},
    "startingOffsets=-1": SUBSCRIBED | {"startingOffsets": of_times(0, 0, -1)},
    "startingOffsets before the beginning": ANYWHERE["startingOffsets before the beginning"],
    "startingOffsets after the end": ANYWHERE["startingOffsets after the end"],
    "startingTimestamp after all records": ANYWHERE["startingTimestamp after all records"],
    "a pattern that no topic has": ANYWHERE["a pattern that no topic has"],
    "maxOffsetsPerTrigger=few": SUBSCRIBED | {"maxOffsetsPerTrigger": "few"},
    "maxOffsetsPerTrigger=0": SUBSCRIBED | {"maxOffsetsPerTrigger": "0"},
    "minOffsetsPerTrigger above maxOffsetsPerTrigger": SUBSCRIBED
    | {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"},
    "maxTriggerDelay=soon": SUBSCRIBED | {"minOffsetsPerTrigger": "20", "maxTriggerDelay": "soon"},
}

_MISTAKE = 'a mistake that `format("kafka")` ignores; `format("tidelog")` names it'
REASONS: Mapping[str, str] = {
    "an option that does not exist": _MISTAKE,
    "a setting that Kafka's clients do not have": _MISTAKE,
    "assign of a partition that does not exist": _MISTAKE,
    "endingTimestamp of a stream": _MISTAKE,
    "maxOffsetsPerTrigger=0": _MISTAKE,
    "maxOffsetsPerTrigger=few of a batch": _MISTAKE,
    "startingTimestamp=-1": _MISTAKE,
}
"""Why one of them refuses what the other takes."""


def questions() -> Iterator[Question]:
    for options in (ANYWHERE, IN_BATCHES):
        for title, given in options.items():
            yield Question(title, given)
    for title, given in IN_STREAMS.items():
        yield Question(title, {"startingOffsets": "earliest", **given}, is_stream=True)


def differences(peers: Peers, question: Question) -> list[str]:
    ours, theirs = peers.ask(OURS, question), peers.ask(THEIRS, question)
    if ours == theirs or (isinstance(ours, Rejected) and isinstance(theirs, Rejected)):
        return []
    return [_describe(OURS, ours), _describe(THEIRS, theirs)]


def _describe(form: str, outcome: Answer | Rejected) -> str:
    return (
        f"{form} says: {outcome.reason}" if isinstance(outcome, Rejected) else f"{form} gives {outcome.row_count} rows"
    )
