"""`tidelog broker list`, `describe` and `forget`."""

import argparse
import json
from typing import NamedTuple

from tidelog.cli.command_error import CommandError
from tidelog.cli.config_view import is_set, settings_json, settings_lines
from tidelog.cli.partition_moves.survey import Survey, survey_cluster
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.admin.reassignment_admin import ReassignmentAdmin
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import BrokerIdNotRegistered, UnsupportedVersion
from tidelog.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tidelog.terminal.plurals import plural
from tidelog.terminal.quantities import size_text
from tidelog.terminal.tables import table
from tidelog.types import BrokerId, TopicPartition, ids_text

PARTITIONS_SHOWN = 10


class Hosted(NamedTuple):
    """What a broker has."""

    replicas: list[TopicPartition]
    leads: list[TopicPartition]
    preferred: list[TopicPartition]
    """Partitions whose first replica is here."""
    out_of_sync: list[TopicPartition]
    size_bytes: int


def hosted_by(broker_id: BrokerId, survey: Survey) -> Hosted:
    partitions = sorted(survey.partitions.items())
    replicas = [each for each, found in partitions if broker_id in found.replicas]
    return Hosted(
        replicas,
        [each for each, found in partitions if found.leader == broker_id],
        [each for each, found in partitions if found.replicas[:1] == (broker_id,)],
        [each for each in replicas if broker_id not in survey.partitions[each].in_sync_replicas],
        sum(survey.sizes.get((each, broker_id), 0) for each in replicas),
    )


async def _known_brokers(cluster: Cluster, survey: Survey) -> list[BrokerId]:
    """Live brokers, those that are down and not forgotten, and those that host replicas."""
    hosting = (each for found in survey.partitions.values() for each in found.replicas)
    return sorted({*survey.brokers, *hosting, *await ReassignmentAdmin(cluster).absent_members()})


async def list_brokers(cluster: Cluster, options: argparse.Namespace) -> None:
    survey = await survey_cluster(cluster)
    controller = cluster.metadata.controller_id
    found = {broker_id: hosted_by(broker_id, survey) for broker_id in await _known_brokers(cluster, survey)}
    if options.json:
        print(json.dumps([_as_json(each, hosted, survey, controller) for each, hosted in found.items()]))
        return
    rows = [
        (
            broker_id,
            "up" if broker_id in survey.brokers else "down",
            str(survey.brokers[broker_id].address) if broker_id in survey.brokers else "-",
            (survey.brokers[broker_id].rack or "-") if broker_id in survey.brokers else "-",
            f"{len(hosted.leads):,}",
            f"{len(hosted.replicas):,}",
            f"{len(hosted.out_of_sync):,}",
            size_text(hosted.size_bytes) if broker_id in survey.brokers else "-",
            "controller" if broker_id == controller else "",
        )
        for broker_id, hosted in found.items()
    ]
    titles = ["BROKER", "STATE", "ADDRESS", "RACK", "LEADS", "REPLICAS", "OUT OF SYNC", "SIZE", ""]
    print("\n".join(table(titles, rows)))


def _as_json(broker_id: BrokerId, hosted: Hosted, survey: Survey, controller: BrokerId) -> dict[str, object]:
    broker = survey.brokers.get(broker_id)
    return {
        "id": broker_id,
        "state": "down" if broker is None else "up",
        "host": None if broker is None else broker.address.host,
        "port": None if broker is None else broker.address.port,
        "rack": None if broker is None else broker.rack,
        "is_controller": broker_id == controller,
        "leads": len(hosted.leads),
        "preferred_leader_of": len(hosted.preferred),
        "replicas": len(hosted.replicas),
        "out_of_sync": len(hosted.out_of_sync),
        "size_bytes": hosted.size_bytes,
    }


async def describe(cluster: Cluster, options: argparse.Namespace) -> None:
    survey = await survey_cluster(cluster)
    broker_id = options.broker
    known = await _known_brokers(cluster, survey)
    if broker_id not in known:
        raise CommandError(f"there is no broker {broker_id}; the cluster has {ids_text(known)}")
    hosted = hosted_by(broker_id, survey)
    broker = survey.brokers.get(broker_id)
    settings = await _settings(cluster, broker_id) if broker is not None else []
    if options.json:
        described = _as_json(broker_id, hosted, survey, cluster.metadata.controller_id)
        print(json.dumps(described | {"settings": settings_json(settings)}))
        return
    role = ", controller" if cluster.metadata.controller_id == broker_id else ""
    print(f"broker       {broker_id}")
    print(f"state        {'down' if broker is None else f'up{role}'}")
    if broker is not None:
        print(f"address      {broker.address}")
        print(f"rack         {broker.rack or '-'}")
    print(f"leads        {plural(len(hosted.leads), 'partition')}; preferred leader of {len(hosted.preferred):,}")
    print(f"replicas     {len(hosted.replicas):,}{f', {size_text(hosted.size_bytes)}' if broker is not None else ''}")
    print(f"out of sync  {_named(hosted.out_of_sync)}")
    if settings:
        print("\n" + "\n".join(settings_lines(settings)))


async def _settings(cluster: Cluster, broker_id: BrokerId) -> list[DescribeConfigsResourceResult]:
    """Those that are not at their defaults."""
    described = await ConfigAdmin(cluster).describe(Resource(ResourceKind.BROKER, str(broker_id)))
    return [each for each in described if is_set(each)]


def _named(partitions: list[TopicPartition]) -> str:
    if not partitions:
        return "none"
    shown = ", ".join(map(str, partitions[:PARTITIONS_SHOWN]))
    hidden = len(partitions) - PARTITIONS_SHOWN
    return f"{shown} and {hidden:,} more" if hidden > 0 else shown


async def forget(cluster: Cluster, options: argparse.Namespace) -> None:
    survey = await survey_cluster(cluster)
    broker_id = options.broker
    count = len(hosted_by(broker_id, survey).replicas)
    drain = f"`tidelog partition move --drain {broker_id}` moves them to other brokers"
    if broker_id in survey.brokers:
        first = f"it has {plural(count, 'replica')}: {drain}. Then stop it" if count else "stop it"
        raise CommandError(f"broker {broker_id} is up and cannot be forgotten: {first}, and forget it after that")
    if count:
        raise CommandError(f"broker {broker_id} still has {plural(count, 'replica')}: {drain}; forget it after that")
    try:
        await ReassignmentAdmin(cluster).unregister_broker(broker_id)
    except BrokerIdNotRegistered:
        raise CommandError(f"there is no broker {broker_id}; `tidelog broker list` lists the brokers") from None
    except UnsupportedVersion:
        raise CommandError(
            "this cluster keeps no list of absent brokers (Apache Kafka with ZooKeeper): there is nothing to forget"
        ) from None
    said = f"forgot broker {broker_id}; if it starts again, it joins as a new broker"
    print(json.dumps({"broker": broker_id, "forgotten": True}) if options.json else said)
