"""`tidelog config get`, `set` and `unset`."""

import argparse
import json
from collections.abc import Sequence

from tidelog.cli.client_command import no_such_topic, note
from tidelog.cli.command_error import CommandError
from tidelog.cli.config_view import (
    changed_text,
    is_set,
    level_lines,
    own_levels,
    resource_text,
    settings_json,
    settings_lines,
)
from tidelog.client.admin.config_admin import ALL_BROKERS, ConfigAdmin, NoSuchTopic, Resource, ResourceKind
from tidelog.client.routing.cluster import Cluster
from tidelog.numerals import natural_number
from tidelog.protocol.messages.describe_configs import DescribeConfigsResourceResult
from tidelog.types import ids_text

EVERY_BROKER = "all"


def resource_of(kind: str, name: str) -> Resource:
    found = ResourceKind[kind.upper()]
    if found is ResourceKind.BROKER and name == EVERY_BROKER:
        return Resource(found, ALL_BROKERS)
    if found in (ResourceKind.BROKER, ResourceKind.LOGGER) and natural_number(name) is None:
        also = " or `all`" if found is ResourceKind.BROKER else ""
        raise CommandError(
            f"expected the id of a broker{also}, found {name!r}; `tidelog broker list` lists the brokers"
        )
    return Resource(found, name)


async def get(cluster: Cluster, options: argparse.Namespace) -> None:
    resource = await _existing(cluster, resource_of(options.kind, options.name))
    entries = await known_entries(cluster, resource, options.keys)
    is_logger = resource.kind is ResourceKind.LOGGER
    own = own_levels(entries) if is_logger else [each for each in entries if is_set(each)]
    shown = entries if options.keys or options.all_settings else own
    if options.json:
        print(json.dumps(settings_json(shown)))
    elif is_logger:
        print("\n".join(level_lines(shown)))
        if len(shown) < len(entries) and not options.keys:
            note("all other loggers have the level of the one above them; --all lists them")
    elif shown:
        print("\n".join(settings_lines(shown)))
    elif resource.name == ALL_BROKERS:
        print("no setting is set for all brokers")
    else:
        print(f"all settings of {resource_text(resource)} are at their defaults; --all lists them")


async def known_entries(
    cluster: Cluster, resource: Resource, keys: Sequence[str]
) -> list[DescribeConfigsResourceResult]:
    """All keys must be names of settings: a broker ignores other ones without a word."""
    try:
        entries = await ConfigAdmin(cluster).describe(resource, keys)
    except NoSuchTopic:
        raise no_such_topic(resource.name) from None
    unknown = [key for key in keys if all(each.name != key for each in entries)]
    if unknown and resource.name != ALL_BROKERS:
        listed = f"`tidelog config get {resource.kind.name.lower()} {resource.name} --all` lists all settings"
        raise CommandError(f"{resource_text(resource)} has no setting {unknown[0]}; {listed}")
    return entries


async def set_(cluster: Cluster, options: argparse.Namespace) -> None:
    await _change(cluster, options, options.settings, ())


async def unset(cluster: Cluster, options: argparse.Namespace) -> None:
    resource = await _existing(cluster, resource_of(options.kind, options.name))
    await known_entries(cluster, resource, options.keys)
    await _change(cluster, options, (), options.keys)


async def _change(
    cluster: Cluster, options: argparse.Namespace, values: Sequence[tuple[str, str]], keys: Sequence[str]
) -> None:
    resource = await _existing(cluster, resource_of(options.kind, options.name))
    reject_duplicates([name for name, _ in values] + list(keys))
    try:
        await ConfigAdmin(cluster).alter(resource, dict(values), keys, validate_only=options.dry_run)
    except NoSuchTopic:
        raise no_such_topic(resource.name) from None
    if options.json:
        changed = {**dict(values), **dict.fromkeys(keys)}
        print(json.dumps({"kind": options.kind, "name": options.name, "settings": changed, "dry_run": options.dry_run}))
        return
    text = changed_text(resource, values, keys)
    print(f"valid, and nothing was changed: {text}" if options.dry_run else f"changed {text}")


def reject_duplicates(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise CommandError(f"{name} is given twice; which value is meant?")


async def _existing(cluster: Cluster, resource: Resource) -> Resource:
    """Rejects a broker that is not there: only the broker itself knows its settings."""
    if resource.kind in (ResourceKind.BROKER, ResourceKind.LOGGER) and resource.name != ALL_BROKERS:
        brokers = (await cluster.refresh()).brokers
        if int(resource.name) not in brokers:
            raise CommandError(f"broker {resource.name} is not up; the cluster has {ids_text(sorted(brokers))}")
    return resource
