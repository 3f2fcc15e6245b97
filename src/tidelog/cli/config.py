"""`tidelog config`: settings of topics, brokers and groups, and log levels."""

import argparse

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    client_command,
    name_option,
    settings_option,
)

DESCRIPTION = """\
Show and change settings of a topic, a broker, all brokers or a group. Changes take effect at once, without a restart.
The brokers check each change before it is made.
"""
EPILOG = """\
  tidelog config get topic orders                     what is set, and where it comes from
  tidelog config set topic orders retention.ms=3600000
  tidelog config unset topic orders retention.ms      the broker's value applies again
  tidelog config set broker all message.max.bytes=2000000
  tidelog config set logger 1 tidelog.replication=DEBUG
"""
KINDS = ("topic", "broker", "group", "logger")
NAME_HELP = "name of the topic or group, or id of the broker; for kind broker also `all`"


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "config",
        help="show and change settings of topics, brokers and groups",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_get(actions)
    _add_set(actions)
    _add_unset(actions)


def _add_get(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "get",
        help="show settings, and where they come from",
        description="Show settings that differ from the defaults, and where each comes from. For loggers: the levels"
        " that differ from that of the logger above.",
    )
    _add_resource(parser)
    parser.add_argument("keys", metavar="KEY", nargs="*", default=(), help="only these settings")
    parser.add_argument("--all", action="store_true", dest="all_settings", help="show also those at their defaults")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("config get", "config_commands", "get"))


def _add_set(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("set", help="change settings", description="Change settings, all of them or none.")
    _add_resource(parser)
    parser.add_argument("settings", metavar="KEY=VALUE", nargs="+", type=settings_option)
    _add_change_options(parser)
    parser.set_defaults(run=client_command("config set", "config_commands", "set_"))


def _add_unset(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "unset",
        help="remove settings: inherited values apply again",
        description="Remove settings. The value of all brokers, of the broker's file, or the default applies again.",
    )
    _add_resource(parser)
    parser.add_argument("keys", metavar="KEY", nargs="+", type=name_option)
    _add_change_options(parser)
    parser.set_defaults(run=client_command("config unset", "config_commands", "unset"))


def _add_resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=f"one of {', '.join(KINDS)}")
    parser.add_argument("name", metavar="NAME", type=name_option, help=NAME_HELP)


def _add_change_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only let the brokers check the change")
    add_json_option(parser)
    add_client_options(parser)
