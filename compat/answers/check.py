"""Comparison of Apache Kafka and Tidelog: the same raw requests to both, and where their answers differ."""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat.answers import (
    classic_groups,
    consumer_groups,
    coordinators,
    extremes,
    frame_lies,
    lies,
    limits,
    offsets,
    readers,
    transactions,
)
from compat.answers.conversation import CHAPTERS, Conversation, differences
from compat.answers.login_failures import KNOWN_LOGINS
from compat.answers.moving import KNOWN_MOVES
from compat.answers.permission_requests import KNOWN_PERMISSIONS
from tests.clients.broker import TidelogProcess
from tools.apache_kafka import KAFKA_4, ApacheKafka

CHAPTER_MODULES = (
    coordinators,
    classic_groups,
    offsets,
    consumer_groups,
    transactions,
    readers,
    extremes,
    limits,
    lies,
    frame_lies,
)
"""Importing them fills the table of chapters."""

SETTINGS = {
    "broker.id": "1",
    "group.initial.rebalance.delay.ms": "1000",
    "group.max.size": "4",
    "group.consumer.max.size": "2",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "default.replication.factor": "1",
    "auto.create.topics.enable": "false",
}

AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
"""Kafka assigns large and small groups once a second, in a thread of its own; Tidelog does so with large ones only."""

ASSIGNED = "the assignor decides which partitions a member gets, and visits members in an order of its own"
INTERNAL = "Tidelog keeps transactions of clients out of internal topics; Kafka first adds the partition, then refuses"
BY_HAND = "Tidelog lets nobody but brokers create internal topics; Kafka forbids one of them only"
REPEATED = "Kafka describes what is named twice once for each time, a group of 50 MB too; Tidelog describes it once"
KNOWN: Mapping[str, str] = {
    **{f"what groups are like, v{version}": REPEATED for version in range(7)},
    "what they are": REPEATED,
    "a heartbeat of the new protocol to a rebalancing group": ASSIGNED,
    "a classic group seen as a consumer group": ASSIGNED,
    "produce to a topic of the broker's own, v3": INTERNAL,
    "produce to a topic of the broker's own, v8": INTERNAL,
    "produce to a topic of the broker's own, v11": INTERNAL,
    "what it is with records, v12": INTERNAL,
    "create __share_group_state, v2": BY_HAND,
    "create __share_group_state, v7": BY_HAND,
    **lies.KNOWN_LIES,
    **frame_lies.KNOWN_FRAMES,
    **KNOWN_PERMISSIONS,
    **KNOWN_LOGINS,
    **KNOWN_MOVES,
    **limits.KNOWN_LIMITS,
}
"""Questions to which the answers differ on purpose, with the reason."""


@dataclass(frozen=True)
class Comparison:
    chapter: str
    questions: int
    differing: Mapping[str, Sequence[str]]
    """Field by field, by question."""

    @property
    def faults(self) -> list[str]:
        return [
            f"{self.chapter}: {question}: {'; '.join(fields)}"
            for question, fields in self.differing.items()
            if question not in KNOWN
        ]


def compare(theirs: Mapping[str, Any], ours: Mapping[str, Any], title: str) -> Comparison:
    found = {question: differences(theirs.get(question), ours.get(question)) for question in {**theirs, **ours}}
    return Comparison(title, len(found), {question: fields for question, fields in found.items() if fields})


def heard(title: str, bootstrap: str) -> dict[str, Any]:
    talk = Conversation(bootstrap)
    try:
        CHAPTERS[title](talk)
        return talk.transcript()
    finally:
        talk.close()


def compare_chapters(kafka: str, tidelog: str, titles: Sequence[str]) -> list[Comparison]:
    """Both brokers are asked at the same time."""
    found = []
    with ThreadPoolExecutor(2) as both:
        for title in titles:
            theirs, ours = both.map(lambda bootstrap, title=title: heard(title, bootstrap), (kafka, tidelog))
            found.append(compare(theirs, ours, title))
    return found


def check(titles: Sequence[str] = ()) -> list[Comparison]:
    with tempfile.TemporaryDirectory(prefix="compat-answers-") as scratch:
        kafka = ApacheKafka(KAFKA_4, 0, Path(scratch) / "kafka", "512m", kafka_settings())
        tidelog = TidelogProcess(Path(scratch) / "tidelog", SETTINGS)
        try:
            kafka.start()
            tidelog.start()
            found = compare_chapters(kafka.bootstrap, tidelog.bootstrap, titles or list(CHAPTERS))
            kafka.stop()
            tidelog.stop()
        finally:
            kafka.kill()
            tidelog.kill()
    return found


def kafka_settings() -> dict[str, str]:
    """Without the id: Kafka's own way to run it names its node already."""
    return {key: value for key, value in SETTINGS.items() if key != "broker.id"} | AT_ONCE


def table(found: Sequence[Comparison]) -> str:
    rows = [f"| {one.chapter} | {one.questions} | {one.questions - len(one.differing)} |\n" for one in found]
    known = [KNOWN[question] for one in found for question in one.differing if question in KNOWN]
    others = [f"- {known.count(reason)}: {reason}\n" for reason in dict.fromkeys(known)]
    heading = "| requests about | asked | answered alike |\n| --- | --- | --- |\n"
    return "".join([heading, *rows, *(["\nThe others:\n\n"] if others else []), *others])


def print_outcome(found: Sequence[Comparison], started: float) -> int:
    """Prints every difference that is not known, and the time since `started`. Returns the exit code."""
    faults = [fault for one in found for fault in one.faults]
    for fault in faults:
        print(fault)
    print(f"{time.monotonic() - started:.0f} s")
    return int(bool(faults))


def print_counts(found: Sequence[Comparison]) -> None:
    for one in found:
        print(f"{one.chapter}: {one.questions} questions, {one.questions - len(one.differing)} answered alike")


INTRODUCTION = """\
Apache Kafka {version} and Tidelog get the same raw requests, good and bad, in all versions of the protocol. Answers are
alike if they are equal in every field except times, addresses and the wording of messages.
"""


def section(found: Sequence[Comparison]) -> str:
    return f"## Answers\n\n{INTRODUCTION.format(version=KAFKA_4)}\n{table(found)}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the answers of Apache Kafka and Tidelog to raw requests.")
    parser.add_argument("--kafka", help="the address of a running Apache Kafka")
    parser.add_argument("--tidelog", help="the address of a running broker of Tidelog")
    parser.add_argument("chapters", nargs="*", help="only these")
    options = parser.parse_args()
    started = time.monotonic()
    titles = options.chapters or list(CHAPTERS)
    if options.kafka:
        found = compare_chapters(options.kafka, options.tidelog, titles)
    else:
        found = check(titles)
    print(table(found))
    return print_outcome(found, started)


if __name__ == "__main__":
    sys.exit(main())
