"""Asks three brokers of Apache Kafka and three of Tidelog for moves of replicas, possible and impossible ones."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compat.answers.check import Comparison, compare, print_counts, print_outcome
from compat.answers.conversation import wait_until
from compat.answers.moving import (
    BROKER,
    BROKER_IDS,
    GROWN,
    LISTS,
    TIMEOUT_MS,
    TOPIC,
    ClusterTalk,
    move_to,
    reassign,
)
from tests.clients.broker import TidelogCluster
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.protocol.messages.elect_leaders import PREFERRED, UNCLEAN, ElectLeadersRequest, ElectLeadersTopic
from tidelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from tools.apache_kafka import KAFKA_4, ApacheKafka, free_port, new_cluster_id

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "replica.fetch.max.bytes": "65536",
}
"""Small fetches: however low the rate, one passes every eleven seconds."""
BATCHES = 60
"""So many that they last for the whole chapter."""
LIST_TEXTS = ("", "*", "0:1", "0:1,1:2", "0:1,", ",", "0", "0:", ":1", "0:x", "x:1", "0:1:2", "0:-1", "-1:1", " 0:1 ")
MORE_LIST_TEXTS = ("0:1, 1:2", "*,0:1", "* ", "**", "none", "99999:1", "0:99999999999", "0;1")


def refused(talk: ClusterTalk) -> None:
    topic, other = talk.topic("topic", (1, 2), (2, 1)), talk.topic("other", (1, 2, 3))
    missing = talk.fresh("missing")
    wrong: Mapping[str, Sequence[int]] = {
        "nobody": (),
        "one broker twice": (1, 1),
        "a broker that does not exist": (1, 9),
        "only one that does not exist": (9,),
        "a negative id": (1, -1),
        "only a negative id": (-1,),
        "more than there are": (1, 2, 3, 4),
        "the largest id": (1, 2**31 - 1),
        "an adding that is there twice": (1, 3, 3),
    }
    for version in (0, 1):
        for what, replicas in wrong.items():
            talk.ask(f"to {what}, v{version}", reassign((topic, 0, replicas)), version)
        talk.ask(f"cancel what does not move, v{version}", reassign((topic, 0, None)), version)
        talk.ask(f"a partition that does not exist, v{version}", reassign((topic, 7, (1, 2))), version)
        talk.ask(f"a negative partition, v{version}", reassign((topic, -1, (1, 2))), version)
        talk.ask(f"cancel a partition that does not exist, v{version}", reassign((topic, 7, None)), version)
        talk.ask(f"a topic that does not exist, v{version}", reassign((missing, 0, (1, 2))), version)
        talk.ask(f"a topic without a name, v{version}", reassign(("", 0, (1, 2))), version)
        talk.ask(f"nothing, v{version}", reassign(), version)
        talk.ask(
            f"good and bad, v{version}", reassign((topic, 0, (1, 2)), (topic, 1, (9,)), (missing, 0, (1,))), version
        )
        talk.ask(f"to where it is, v{version}", reassign((topic, 0, (1, 2))), version)
        talk.state(f"after all of that, v{version}", topic)
    for factor in ((1,), (1, 2, 3)):
        request = reassign((topic, 0, factor), may_change_factor=False)
        talk.ask(f"to {len(factor)} replicas, which must not change", request, 1)
    talk.state("after changes of the factor that are not allowed", topic)
    talk.ask("another order", reassign((other, 0, (3, 2, 1))), 1)
    talk.state("after another order", other)
    for timeout_ms in (0, -1):
        talk.ask(f"with a timeout of {timeout_ms} ms", reassign((other, 0, (9,)), timeout_ms=timeout_ms), 1)
    listing(talk, topic, missing)


def listing(talk: ClusterTalk, topic: str, missing: str) -> None:
    wanted: Mapping[str, list[ListPartitionReassignmentsTopic] | None] = {
        "everything": None,
        "nothing": [],
        "one that does not move": [ListPartitionReassignmentsTopic(topic, [0])],
        "one that does not exist": [ListPartitionReassignmentsTopic(topic, [7])],
        "a topic that does not exist": [ListPartitionReassignmentsTopic(missing, [0])],
        "no partition of a topic": [ListPartitionReassignmentsTopic(topic, [])],
    }
    for what, topics in wanted.items():
        talk.ask(f"list {what}", ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS), 0)


def under_way(talk: ClusterTalk) -> None:
    topic = talk.topic("topic", (1, 2), (2, 1), batches=BATCHES)
    talk.hold(topic)
    steps: Mapping[str, Sequence[int] | None] = {
        "begin": (3, 2),
        "the same again": (3, 2),
        "the other order": (2, 3),
        "another target": (3, 1),
        "one replica only": (3,),
        "back to where it was": (1, 2),
        "once more": (3, 2),
        "cancel": None,
        "cancel again": None,
        "three replicas": (1, 2, 3),
        "nonsense meanwhile": (1, 9),
        "cancel the third": None,
    }
    for what, replicas in steps.items():
        talk.ask(what, reassign((topic, 0, replicas)), 1)
        talk.state(f"after: {what}", topic)
    talk.ask("a factor that must not change, meanwhile", reassign((topic, 0, (3, 1, 2)), may_change_factor=False), 1)
    talk.ask("begin before growing", reassign((topic, 0, (3, 2))), 1)
    grow(talk, topic, 1, validate_only=True)
    grow(talk, topic, 3, validate_only=True)
    elect(talk, topic)
    talk.ask("cancel one that moves and one that does not", reassign((topic, 0, None), (topic, 1, None)), 1)
    talk.ask("begin before the end", reassign((topic, 0, (3, 2))), 1)
    talk.release()
    wait_until(lambda: not talk.listed(topic), "the move ends")
    talk.ask("cancel when it has ended", reassign((topic, 0, None)), 1)
    talk.state("after its end", topic)


def growing(talk: ClusterTalk) -> None:
    topic = talk.topic("topic", (1, 2), (2, 1), batches=BATCHES)
    talk.hold(topic)
    talk.ask("begin", reassign((topic, 0, (3, 2))), 1)
    grow(talk, topic, 4, (1, 2), (3, 1))
    talk.state(GROWN, topic)
    talk.ask("cancel with more partitions", reassign((topic, 0, None)), 1)
    missing = 6 - len(talk.placed(topic))  # Kafka has refused the others
    grow(talk, topic, 6, *[(1, 2), (3, 1)] * (missing // 2))
    talk.state("all of them", topic)
    talk.release()


def grow(talk: ClusterTalk, topic: str, count: int, *places: Sequence[int], validate_only: bool = False) -> None:
    assignments = [CreatePartitionsAssignment(list(each)) for each in places] or None
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    talk.ask(f"grow to {count} partitions meanwhile", request, 3)


def elect(talk: ClusterTalk, topic: str) -> None:
    for kind in (PREFERRED, UNCLEAN):
        wanted = [ElectLeadersTopic(topic=topic, partitions=[0, 1, 7])]
        request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
        talk.ask(f"election of type {kind} meanwhile", request, 2)


def deleted(talk: ClusterTalk) -> None:
    topic = talk.topic("topic", (1, 2), batches=BATCHES)
    talk.hold(topic)
    talk.ask("begin", reassign((topic, 0, (3, 2))), 1)
    talk.state("before its deletion", topic)
    talk.ask("delete", DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=TIMEOUT_MS), 6)
    wait_until(lambda: talk.metadata(topic).topics[0].error_code != 0, "the topic is gone")
    talk.state("after its deletion", topic)
    talk.ask("cancel what is deleted", reassign((topic, 0, None)), 1)
    talk.ask("move what is deleted", reassign((topic, 0, (1, 3))), 1)
    talk.release()


def directories(talk: ClusterTalk) -> None:
    topic = talk.topic("topic", (1, 2), (1, 2), batches=3)
    missing = talk.fresh("missing")
    one, two = talk.directories[1]
    for version in (1, 2):
        wrong = {
            "a directory that does not exist": ("/nowhere/at/all", topic, 0),
            "a relative path": ("somewhere", topic, 0),
            "no path": ("", topic, 0),
            "another broker's directory": (talk.directories[2][0], topic, 0),
            "a topic that does not exist": (one, missing, 0),
            "a partition that does not exist": (one, topic, 7),
            "a negative partition": (one, topic, -1),
            "a topic that does not exist, and no directory": ("/nowhere/at/all", missing, 0),
        }
        for what, place in wrong.items():
            talk.ask(f"{what}, v{version}", move_to(place), version)
        talk.ask(f"nothing, v{version}", move_to(), version)
        here = _directory_of(talk, 1, topic)
        assert here is not None
        talk.ask(f"where it is, v{version}", move_to((here, topic, 0)), version)
        there = two if here == one else one
        talk.ask(f"the other, v{version}", move_to((there, topic, 0)), version)
        wait_until(lambda there=there: _directory_of(talk, 1, topic) == there, "it has moved")  # type: ignore[misc]
    absent = move_to((talk.directories[3][1], topic, 0))
    talk.ask("a broker that has no replica", absent, 2, talk.brokers[3])
    talk.ask("then one is added", reassign((topic, 0, (1, 2, 3))), 1)
    wait_until(lambda: not talk.listed(topic), "the replica is added")
    talk.note("it is where it was wanted", _directory_of(talk, 3, topic) == talk.directories[3][1])
    talk.ask("both directories at once", move_to((one, topic, 1), (two, topic, 1)), 2)


def _directory_of(talk: ClusterTalk, broker_id: int, topic: str) -> str | None:
    found = [
        each.log_dir
        for each in talk.log_dirs(broker_id).results
        for one in each.topics
        if one.name == topic
        for partition in one.partitions
        if partition.partition_index == 0 and not partition.is_future_key
    ]
    return found[0] if found else None


def both_kinds(talk: ClusterTalk) -> None:
    """A replica that is being added moves to another disk meanwhile."""
    topic = talk.topic("topic", (1, 2), batches=BATCHES // 4)
    talk.hold(topic)
    talk.ask("begin", reassign((topic, 0, (3, 2))), 1)
    wait_until(lambda: _directory_of(talk, 3, topic) is not None, "the new replica has a log")
    one, two = talk.directories[3]
    there = two if _directory_of(talk, 3, topic) == one else one
    talk.ask("the other directory", move_to((there, topic, 0)), 2, talk.brokers[3])
    talk.ask("of the one that leaves, too", move_to((talk.directories[1][1], topic, 0)), 2)
    talk.release()
    wait_until(lambda: not talk.listed(topic), "the move between brokers ends")
    wait_until(lambda: _directory_of(talk, 3, topic) == there, "the move between directories ends")
    wait_until(lambda: _directory_of(talk, 1, topic) is None, "the one that leaves is gone")
    talk.state("after both", topic)


def throttles(talk: ClusterTalk) -> None:
    topic = talk.topic("topic", (1, 2))
    for name in LISTS:
        for text in (*LIST_TEXTS, *MORE_LIST_TEXTS):
            talk.ask(f"{name}={text!r}", _setting(TOPIC, topic, name, text), 1)
        for resource in ("1", ""):
            talk.ask(f"{name} of {resource or 'all brokers'}", _setting(BROKER, resource, name, "0:1"), 1)


def _setting(kind: int, resource: str, name: str, text: str) -> IncrementalAlterConfigsRequest:
    change = AlterableConfig(name=name, config_operation=0, value=text)
    wanted = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
    return IncrementalAlterConfigsRequest(resources=[wanted], validate_only=True)


CHAPTERS: Mapping[str, Callable[[ClusterTalk], None]] = {
    "moves that are refused": refused,
    "moves under way": under_way,
    "a topic that grows while it moves": growing,
    "a topic that is deleted while it moves": deleted,
    "log directories of replicas": directories,
    "moves between brokers and directories at once": both_kinds,
    "lists of throttled replicas": throttles,
}


def heard(bootstrap: str, titles: Sequence[str]) -> dict[str, dict[str, Any]]:
    found = {}
    for title in titles:
        talk = ClusterTalk(bootstrap)
        try:
            CHAPTERS[title](talk)
            found[title] = talk.transcript()
        finally:
            talk.close()
    return found


def compare_clusters(kafka: str, tidelog: str, titles: Sequence[str] = ()) -> list[Comparison]:
    titles = titles or list(CHAPTERS)
    with ThreadPoolExecutor(2) as both:
        theirs, ours = both.map(lambda bootstrap: heard(bootstrap, titles), (kafka, tidelog))
    return [compare(theirs[title], ours[title], title) for title in titles]


@contextmanager
def three_of_kafka(directory: Path) -> Iterator[str]:
    """KRaft, combined mode: each is broker and controller, with two log directories."""
    ports = {broker_id: free_port() for broker_id in BROKER_IDS}
    voters = ",".join(f"{broker_id}@127.0.0.1:{port}" for broker_id, port in ports.items())
    cluster_id = new_cluster_id()
    brokers = []
    for broker_id, port in ports.items():
        home = directory / f"broker-{broker_id}"
        log_dirs = f"{home / 'logs'},{home / 'logs-2'}"
        settings = SETTINGS | {"controller.quorum.voters": voters, "log.dirs": log_dirs}
        brokers.append(
            ApacheKafka(
                KAFKA_4, 0, home, "384m", settings, broker_id=broker_id, controller_port=port, cluster_id=cluster_id
            )
        )
    try:
        with ThreadPoolExecutor(len(brokers)) as starting:
            list(starting.map(ApacheKafka.start, brokers))
        yield brokers[0].bootstrap
    finally:
        for broker in brokers:
            broker.kill()


@contextmanager
def three_of_tidelog(directory: Path) -> Iterator[str]:
    cluster = TidelogCluster(directory, SETTINGS, disks=2)
    try:
        cluster.start()
        yield cluster.brokers[1].bootstrap
    finally:
        cluster.kill()


def check(titles: Sequence[str] = ()) -> list[Comparison]:
    with (
        tempfile.TemporaryDirectory(prefix="compat-moves-") as scratch,
        three_of_kafka(Path(scratch) / "kafka") as kafka,
        three_of_tidelog(Path(scratch) / "tidelog") as tidelog,
    ):
        return compare_clusters(kafka, tidelog, titles)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare moves of replicas in Apache Kafka and Tidelog.")
    parser.add_argument("--only", action="append", choices=list(CHAPTERS), metavar="CHAPTER")
    options = parser.parse_args()
    started = time.monotonic()
    found = check(options.only or ())
    print_counts(found)
    return print_outcome(found, started)


if __name__ == "__main__":
    sys.exit(main())
