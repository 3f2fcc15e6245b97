"""`tidelog partition list`, `elect` and `why`."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Sequence

from tidelog.cli.client_command import command_network, no_such_partition, no_such_topic, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.broker_queries import BrokerQueries
from tidelog.cli.local_cluster.inspection import inspect_remote_cluster
from tidelog.cli.local_cluster.view import is_internal
from tidelog.cli.partition_diagnosis import Findings, diagnosis
from tidelog.cli.partition_moves.survey import Survey, survey_cluster
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.reassignment_admin import ReassignmentAdmin
from tidelog.client.routing.cluster import Cluster
from tidelog.client.routing.metadata import PartitionMetadata
from tidelog.errors import KafkaError
from tidelog.numerals import natural_number
from tidelog.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.terminal.plurals import plural
from tidelog.terminal.quantities import size_text
from tidelog.terminal.tables import table
from tidelog.types import BrokerId, TopicPartition, ids_text

ERRORS_SHOWN = 5


async def list_partitions(cluster: Cluster, options: argparse.Namespace) -> None:
    survey = await survey_cluster(cluster)
    chosen = [
        each
        for each in sorted(survey.partitions)
        if (options.topics is None or each.topic in options.topics)
        and not (options.unhealthy and _is_healthy(survey.partitions[each]))
    ]
    for topic in options.topics or ():
        if not any(each.topic == topic for each in survey.partitions):
            raise no_such_topic(topic)
    if options.json:
        print(json.dumps([_as_json(each, survey) for each in chosen]))
        return
    if not chosen:
        print("all partitions are healthy" if options.unhealthy and survey.partitions else "no partitions yet")
        return
    listed = [each for each in chosen if options.topics or options.shows_all or not is_internal(each.topic)]
    if options.unhealthy:
        listed.sort(key=lambda each: survey.partitions[each].leader >= 0)
    rows = [_row(each, survey) for each in listed]
    lines = table(["PARTITION", "LEADER", "REPLICAS", "IN SYNC", "SIZE", ""], rows) if rows else []
    print("\n".join([*lines, *_unlisted_lines(chosen, listed)]))


def _unlisted_lines(chosen: Sequence[TopicPartition], listed: Sequence[TopicPartition]) -> list[str]:
    """One line for each internal topic: they have many partitions, which would hide all others."""
    counts = Counter(each.topic for each in chosen)
    counts.subtract(each.topic for each in listed)
    return [f"{topic}: {plural(count, 'partition')}; --all lists them" for topic, count in counts.items() if count]


def _is_healthy(partition: PartitionMetadata) -> bool:
    return partition.leader >= 0 and set(partition.in_sync_replicas) >= set(partition.replicas)


def _row(topic_partition: TopicPartition, survey: Survey) -> Sequence[object]:
    partition = survey.partitions[topic_partition]
    return (
        topic_partition,
        "none" if partition.leader < 0 else partition.leader,
        ids_text(partition.replicas),
        ids_text(partition.in_sync_replicas),
        size_text(survey.size_of(topic_partition)),
        _remark(topic_partition, survey),
    )


def _remark(topic_partition: TopicPartition, survey: Survey) -> str:
    partition, move = survey.partitions[topic_partition], survey.ongoing.get(topic_partition)
    if partition.leader < 0:
        return "no leader"
    if move is not None:
        return f"moving: adds {ids_text(move.adding)}, removes {ids_text(move.removing)}"
    missing = [each for each in partition.replicas if each not in partition.in_sync_replicas]
    if missing:
        return f"out of sync: {ids_text(missing)}"
    return "" if partition.leader == partition.replicas[0] else f"preferred leader is {partition.replicas[0]}"


def _as_json(topic_partition: TopicPartition, survey: Survey) -> dict[str, object]:
    partition, move = survey.partitions[topic_partition], survey.ongoing.get(topic_partition)
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "leader": None if partition.leader < 0 else partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.in_sync_replicas),
        "adding": list(move.adding) if move else [],
        "removing": list(move.removing) if move else [],
        "size_bytes": survey.size_of(topic_partition),
    }


async def elect(cluster: Cluster, options: argparse.Namespace) -> None:
    survey = await survey_cluster(cluster)
    chosen = _chosen(options.partitions, survey)
    if options.unclean:
        chosen = {each for each in chosen if survey.partitions[each].leader < 0}
        if not chosen:
            text = "no unclean election is needed: the partitions have leaders"
            print(json.dumps({"elected": []}) if options.json else text)
            return
        _confirm_unclean(chosen, is_confirmed=options.yes)
    outcomes = await ReassignmentAdmin(cluster).elect(chosen, is_unclean=options.unclean)
    failed = {each: error for each, error in outcomes.items() if error is not None}
    for error in list(failed.values())[:ERRORS_SHOWN]:
        note(f"not elected: {error}")
    if failed:
        raise CommandError(
            f"{plural(len(failed), 'partition')} without a new leader; `tidelog partition why TOPIC PARTITION` says why"
        )
    if options.json:
        print(json.dumps({"elected": [[*each] for each in sorted(outcomes)]}))
    else:
        print(f"elected {plural(len(outcomes), 'leader')}" if outcomes else "the preferred replicas lead already")


def _chosen(named: Sequence[str], survey: Survey) -> set[TopicPartition]:
    if not named:
        return set(survey.partitions)
    chosen: set[TopicPartition] = set()
    for text in named:
        topic, separator, number = text.rpartition(":")
        if not separator:
            topic = text
        elif natural_number(number) is None:
            raise CommandError(f"expected TOPIC or TOPIC:N, such as orders:0, found {text!r}")
        of_topic = {each for each in survey.partitions if each.topic == topic}
        if not of_topic:
            raise no_such_topic(topic)
        wanted = {each for each in of_topic if not separator or each.partition == int(number)}
        if not wanted:
            raise no_such_partition(topic, len(of_topic), int(number))
        chosen |= wanted
    return chosen


def _confirm_unclean(chosen: Collection[TopicPartition], *, is_confirmed: bool) -> None:
    names = ", ".join(map(str, sorted(chosen)[:ERRORS_SHOWN]))
    warning = (
        f"An unclean election makes a replica the leader that was not in sync: acknowledged records that only the"
        f" absent brokers have are lost for good ({names})."
    )
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        raise CommandError(f"{warning} Start the absent brokers instead, or add --yes")
    print(f"{warning} Starting the absent brokers loses nothing.\nElect all the same? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed")


async def why(cluster: Cluster, options: argparse.Namespace) -> None:
    topic_partition = _topic_partition(options.topic, options.partition)
    topic, partition = topic_partition
    queries = BrokerQueries(command_network(options.command_config))
    try:
        addresses = [broker.address for broker in cluster.metadata.brokers.values()]
        view = await inspect_remote_cluster(queries, addresses)
    finally:
        queries.close()
    partitions = {each.topic_partition: each for each in view.partitions}
    if topic_partition not in partitions:
        count = sum(each.topic == topic for each in partitions)
        raise no_such_partition(topic, count, partition) if count else no_such_topic(topic)
    found = Findings(
        partitions[topic_partition],
        frozenset(cluster.metadata.brokers),
        await _min_in_sync(cluster, topic),
        await _eligible(cluster, topic_partition),
        (await ReassignmentAdmin(cluster).ongoing()).get(topic_partition),
        view.at_ms,
    )
    lines = diagnosis(found)
    if options.json:
        health = {"is_healthy": found.partition.is_healthy, "leader": found.partition.leader}
        print(json.dumps({"topic": topic, "partition": partition, **health, "diagnosis": lines}))
    else:
        print("\n".join(lines))


def _topic_partition(topic: str, partition: int | None) -> TopicPartition:
    """`status` writes TOPIC-N and `elect` reads TOPIC:N, so both are understood."""
    if partition is not None:
        return TopicPartition(topic, partition)
    name, separator, number = topic.rpartition(":" if ":" in topic else "-")
    if not separator or natural_number(number) is None:
        raise CommandError(f"which partition of {topic}? Give its number too: tidelog partition why {topic} 0")
    return TopicPartition(name, int(number))


async def _min_in_sync(cluster: Cluster, topic: str) -> int:
    settings = (await Admin(cluster).topic_settings(topic))[topic].configs
    return next((int(each.value or 1) for each in settings if each.name == "min.insync.replicas"), 1)


async def _eligible(cluster: Cluster, topic_partition: TopicPartition) -> tuple[BrokerId, ...]:
    """Eligible leader replicas (KIP-966); none where the brokers do not know them."""
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic_partition.topic)])
    try:
        response = await cluster.ask_any(request, DescribeTopicPartitionsResponse)
    except KafkaError:
        return ()
    return tuple(
        broker
        for topic in response.topics
        for partition in topic.partitions
        if partition.partition_index == topic_partition.partition
        for broker in partition.eligible_leader_replicas or ()
    )
