"""`tidelog topic`: create, list, describe, change and delete topics."""

import argparse

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    client_command,
    count_option,
    name_option,
    settings_option,
)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "topic",
        help="create, list, describe, change and delete topics",
        description="Create, list, describe, change and delete topics.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_create(actions)
    _add_list(actions)
    _add_describe(actions)
    _add_alter(actions)
    _add_delete(actions)


def _add_create(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "create", help="create a topic", description="Create a topic. Returns when all brokers know it and its leaders."
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partitions",
        metavar="N",
        type=count_option,
        default=-1,
        help="number of partitions (default: num.partitions of the cluster)",
    )
    parser.add_argument(
        "--replication-factor",
        metavar="N",
        type=count_option,
        default=-1,
        help="replicas of each partition (default: default.replication.factor of the cluster)",
    )
    _add_set(parser)
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("topic create", "topic_commands", "create"))


def _add_set(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        type=settings_option,
        default=[],
        dest="settings",
        help="a topic setting, such as retention.ms=3600000; may be repeated",
    )


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("list", help="list all topics", description="List all topics, with their health.")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("topic list", "topic_commands", "list_topics"))


def _add_describe(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "describe",
        help="show settings, partitions, leaders, replicas",
        description="Show the settings of a topic and where they come from, and its partitions with leader, replicas"
        " and in-sync replicas.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--all-settings", action="store_true", help="show also settings at their defaults")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("topic describe", "topic_commands", "describe"))


def _add_alter(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "alter",
        help="change settings, add partitions",
        description="Change the settings of a topic, or add partitions. The brokers check everything first.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    _add_set(parser)
    parser.add_argument(
        "--unset",
        metavar="KEY",
        action="append",
        type=name_option,
        default=[],
        help="remove a setting: the broker's value applies again; may be repeated",
    )
    parser.add_argument(
        "--partitions",
        metavar="N",
        type=count_option,
        help="new number of partitions; only more than now. Keys of new records may get other partitions",
    )
    parser.add_argument("--dry-run", action="store_true", help="only let the brokers check the change")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("topic alter", "topic_commands", "alter"))


def _add_delete(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "delete",
        help="delete a topic and its records",
        description="Delete a topic and all its records. This cannot be undone.",
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("topic delete", "topic_commands", "delete"))
