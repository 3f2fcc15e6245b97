"""`tidelog group`: consumer groups, their members, committed offsets and lag; resetting offsets, deleting groups."""

import argparse
import json
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    name_option,
    no_such_partition,
    no_such_topic,
    run_command,
)
from tidelog.cli.command_error import CommandError
from tidelog.cli.time_options import NOW, time_option
from tidelog.numerals import natural_number, whole_number
from tidelog.terminal.plurals import plural
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.group_admin import GroupAdmin, GroupDescription, GroupMemberDescription
    from tidelog.client.admin.offset_reset import ResetTarget
    from tidelog.client.routing.cluster import Cluster

MAX_OFFSET = 2**63 - 1


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "group",
        help="consumer groups: list, describe with lag, reset offsets, delete",
        description="Consumer groups: list them, show members, committed offsets and lag, reset offsets, delete"
        " groups.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_list(actions)
    _add_describe(actions)
    _add_reset_offsets(actions)
    _add_delete(actions)


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("list", help="list all groups", description="List all groups, with their state.")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("group list", _list, options))


def _add_describe(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "describe",
        help="show members, committed offsets and lag",
        description="Show the members of a group with their partitions, the committed offsets and the lag.",
    )
    parser.add_argument("group", metavar="GROUP", type=name_option)
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("group describe", _describe, options))


def _add_reset_offsets(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "reset-offsets",
        help="change the committed offsets of a group",
        description="Change the committed offsets of a group without members. Prints the changes; --execute applies"
        " them.",
    )
    parser.add_argument("group", metavar="GROUP", type=name_option)
    parser.add_argument(
        "--topic",
        metavar="TOPIC[:N,N...]",
        action="append",
        dest="topics",
        type=_topic_option,
        help="a topic, or some of its partitions; may be repeated (default: all partitions with a committed offset)",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="to the log start offset")
    target.add_argument("--to-latest", action="store_true", help="to the end: only new records are read")
    target.add_argument("--to-offset", metavar="N", type=_offset_option, help="to this offset")
    target.add_argument(
        "--to-time",
        metavar="TIME",
        type=time_option,
        help="to the first record at or after this time, such as 2026-01-31T12:00",
    )
    target.add_argument("--shift-by", metavar="N", type=_shift_option, help="by N offsets; a negative N moves back")
    parser.add_argument("--execute", action="store_true", help="apply the changes; without this they are only printed")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("group reset-offsets", _reset_offsets, options))


def _add_delete(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "delete",
        help="delete a group and its committed offsets",
        description="Delete a group without members, with its committed offsets.",
    )
    parser.add_argument("group", metavar="GROUP", type=name_option)
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda options: run_command("group delete", _delete, options))


class _Topic(NamedTuple):
    name: str
    partitions: frozenset[int] | None
    """None for all."""


def _topic_option(text: str) -> _Topic:
    name, separator, numbers = text.partition(":")
    parts = numbers.split(",")
    if not name or (separator and any(natural_number(part) is None for part in parts)):
        raise argparse.ArgumentTypeError(f"expected TOPIC or TOPIC:0,1 (partitions 0 and 1), found {text!r}")
    return _Topic(name, frozenset(map(int, parts)) if separator else None)


def _offset_option(text: str) -> int:
    offset = natural_number(text)
    if offset is None or offset > MAX_OFFSET:
        raise argparse.ArgumentTypeError(f"expected an offset of at least 0, found {text!r}")
    return offset


def _shift_option(text: str) -> int:
    number = whole_number(text)
    if number is None or abs(number) > MAX_OFFSET:
        raise argparse.ArgumentTypeError(f"expected a number of records such as -100, found {text!r}")
    return number


async def _list(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.group_admin import GroupAdmin
    from tidelog.terminal.tables import table

    groups = await GroupAdmin(cluster).list_groups()
    if options.json:
        print(json.dumps([each._asdict() for each in groups]))
        return
    if not groups:
        print("no groups yet; a consumer with a group.id creates one")
        return
    rows = [(group.group_id, group.kind.lower() or "-", group.state, group.coordinator) for group in groups]
    print("\n".join(table(["GROUP", "KIND", "STATE", "COORDINATOR"], rows)))


async def _describe(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.group_admin import GroupAdmin
    from tidelog.terminal.tables import table

    admin = GroupAdmin(cluster)
    group = await _find_group(admin, options.group)
    committed = {key: value.offset for key, value in (await admin.offsets(group.group_id)).items()}
    owners = {key: member for member in group.members for key in member.partitions}
    ends = await _ends(cluster, [*committed, *owners])
    lags = {key: max(ends[key] - offset, 0) for key, offset in committed.items() if key in ends}
    if options.json:
        print(json.dumps(_as_json(group, committed, ends, owners)))
        return
    print(f"group     {group.group_id}")
    print(f"kind      {group.kind}{f', assignor {group.assignor}' if group.assignor else ''}")
    print(f"state     {group.state}, {plural(len(group.members), 'member')}")
    print(f"lag       {_lag_text(lags, {*committed, *owners})}")
    rows = [
        (
            *key,
            committed.get(key, "-"),
            ends.get(key, "-"),
            lags.get(key, "-"),
            *_member_cells(owners.get(key)),
        )
        for key in sorted({*committed, *owners})
    ]
    if rows:
        print()
        print("\n".join(table(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST"], rows)))
    for member in group.members:
        if not member.partitions:
            print(f"member without partitions: {' at '.join(_member_cells(member))}")


def _as_json(
    group: "GroupDescription",
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    owners: "Mapping[TopicPartition, GroupMemberDescription]",
) -> dict[str, object]:
    def partition(key: TopicPartition) -> dict[str, object]:
        offset, end = committed.get(key), ends.get(key)
        return {
            "topic": key.topic,
            "partition": key.partition,
            "committed": offset,
            "end": end,
            "lag": None if offset is None or end is None else max(end - offset, 0),
            "member": owners[key].member_id if key in owners else None,
        }

    return {
        "group": group.group_id,
        "kind": group.kind,
        "assignor": group.assignor,
        "state": group.state,
        "partitions": [partition(key) for key in sorted({*committed, *owners})],
        "members": [
            {
                "id": member.member_id,
                "instance_id": member.instance_id,
                "host": member.host.removeprefix("/"),
                "partitions": [[*key] for key in sorted(member.partitions)],
            }
            for member in group.members
        ],
    }


def _lag_text(lags: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]) -> str:
    text = plural(sum(lags.values()), "record")
    unknown = len(partitions) - len(lags)
    return text + (f", not counting {plural(unknown, 'partition')} without a committed offset" if unknown else "")


def _member_cells(member: "GroupMemberDescription | None") -> tuple[str, str]:
    if member is None:
        return "-", "-"
    return member.instance_id or member.member_id, member.host.removeprefix("/")


async def _delete(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.group_admin import GroupAdmin
    from tidelog.errors import GroupIdNotFound, NonEmptyGroup

    try:
        await GroupAdmin(cluster).delete(options.group)
    except GroupIdNotFound:
        raise _no_such_group(options.group) from None
    except NonEmptyGroup:
        raise _has_members(options.group) from None
    print(json.dumps({"group": options.group, "deleted": True}) if options.json else f"deleted group {options.group}")


async def _reset_offsets(cluster: "Cluster", options: argparse.Namespace) -> None:
    from tidelog.client.admin.group_admin import GroupAdmin
    from tidelog.client.admin.offset_reset import reset_offsets
    from tidelog.errors import UnknownMemberId
    from tidelog.terminal.tables import table

    admin = GroupAdmin(cluster)
    members = await _count_members(admin, options.group)
    if members is None and options.topics is None:
        raise CommandError(f"{_no_such_group(options.group)}; a new one needs --topic")
    if members and options.execute:
        raise _has_members(options.group)
    committed = {key: value.offset for key, value in (await admin.offsets(options.group)).items()}
    partitions = await _chosen_partitions(cluster, options.group, options.topics, committed)
    targets = await reset_offsets(cluster, partitions, committed, _target(options))
    if not options.json:
        rows = [(*key, committed.get(key, "-"), offset) for key, offset in sorted(targets.items())]
        print("\n".join(table(["TOPIC", "PARTITION", "COMMITTED", "NEW"], rows)))
    if not options.execute:
        if options.json:
            _print_reset(options, committed, targets)
        else:
            print(f"no offset was changed; {_execute_hint(options.group, members)}")
        return
    try:
        await admin.commit(options.group, targets)
    except UnknownMemberId:
        raise _has_members(options.group) from None
    if options.json:
        _print_reset(options, committed, targets)
    else:
        print(f"group {options.group} continues from these offsets")


def _print_reset(
    options: argparse.Namespace, committed: Mapping[TopicPartition, int], targets: Mapping[TopicPartition, int]
) -> None:
    offsets = [
        {"topic": key.topic, "partition": key.partition, "committed": committed.get(key), "new": offset}
        for key, offset in sorted(targets.items())
    ]
    print(json.dumps({"group": options.group, "executed": options.execute, "offsets": offsets}))


def _execute_hint(group_id: str, members: int | None) -> str:
    if members is None:
        return f"group {group_id} does not exist yet: add --execute to create it"
    first = f"stop the consumers of the group (it has {plural(members, 'member')}), then " if members else ""
    return f"{first}add --execute to apply"


async def _chosen_partitions(
    cluster: "Cluster", group_id: str, topics: list[_Topic] | None, committed: Mapping[TopicPartition, int]
) -> list[TopicPartition]:
    if topics is None:
        if not committed:
            raise CommandError(f"group {group_id} has no committed offsets: select topics with --topic")
        return list(committed)
    metadata = await cluster.ask_topics([topic.name for topic in topics])
    chosen = []
    for topic in topics:
        if topic.name not in metadata.topics:
            raise no_such_topic(topic.name)
        known = metadata.topics[topic.name].partitions
        missing = (topic.partitions or frozenset()) - known.keys()
        if missing:
            raise no_such_partition(topic.name, len(known), min(missing))
        chosen += [TopicPartition(topic.name, number) for number in sorted(topic.partitions or known)]
    return chosen


def _target(options: argparse.Namespace) -> "ResetTarget":
    from tidelog.client.admin.offset_reset import ResetKind, ResetTarget

    if options.to_earliest:
        return ResetTarget(ResetKind.EARLIEST)
    if options.to_latest:
        return ResetTarget(ResetKind.LATEST)
    if options.to_time is not None:
        now_ms = time.time_ns() // 1_000_000
        return ResetTarget(ResetKind.TIME, now_ms if options.to_time == NOW else options.to_time)
    if options.to_offset is not None:
        return ResetTarget(ResetKind.OFFSET, options.to_offset)
    return ResetTarget(ResetKind.SHIFT, options.shift_by)


async def _find_group(admin: "GroupAdmin", group_id: str) -> "GroupDescription":
    from tidelog.errors import GroupIdNotFound

    try:
        return await admin.describe(group_id)
    except GroupIdNotFound:
        raise _no_such_group(group_id) from None


async def _count_members(admin: "GroupAdmin", group_id: str) -> int | None:
    """None if there is no such group."""
    from tidelog.errors import GroupIdNotFound

    try:
        return len((await admin.describe(group_id)).members)
    except GroupIdNotFound:
        return None


def _no_such_group(group_id: str) -> CommandError:
    return CommandError(f"group {group_id} does not exist; `tidelog group list` lists the groups")


def _has_members(group_id: str) -> CommandError:
    return CommandError(f"group {group_id} has members: stop its consumers first")


async def _ends(cluster: "Cluster", partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Log end offsets of the partitions that still exist."""
    from tidelog.client.consumer.offsets import END, list_offsets

    topics = {key.topic for key in partitions}
    metadata = await cluster.ask_topics(sorted(topics))
    existing = [
        key
        for key in partitions
        if key.topic in metadata.topics and key.partition in metadata.topics[key.topic].partitions
    ]
    found = await list_offsets(cluster, dict.fromkeys(existing, END)) if existing else {}
    return {key: at.offset for key, at in found.items()}
