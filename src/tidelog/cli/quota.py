"""`tidelog quota`: client quotas."""

import argparse

from tidelog.cli.client_command import (
    add_client_options,
    add_json_option,
    client_command,
    name_option,
    settings_option,
)

DESCRIPTION = """\
Limits of users, client ids and addresses. The most specific limit applies: that of a user with a client id, of the
user, of all users (`--user default`), of the client id, of all client ids.
"""
EPILOG = """\
  tidelog quota set --user alice producer_byte_rate=1048576
  tidelog quota set --user default --client-id batch consumer_byte_rate=65536 request_percentage=20
  tidelog quota set --ip 10.0.0.7 connection_creation_rate=5
  tidelog quota list
  tidelog quota unset --user alice producer_byte_rate
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "quota",
        help="limit what users, client ids and addresses may use",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    set_ = actions.add_parser("set", help="set limits", description="Set limits.")
    _add_entity(set_)
    set_.add_argument("settings", metavar="KEY=VALUE", nargs="+", type=settings_option)
    _finish(set_, "set", "set_")
    unset = actions.add_parser("unset", help="remove limits", description="Remove limits.")
    _add_entity(unset)
    unset.add_argument("keys", metavar="KEY", nargs="+", type=name_option)
    _finish(unset, "unset", "unset")
    _finish(actions.add_parser("list", help="list all limits", description="List all limits."), "list", "list_")


def _add_entity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--user", metavar="NAME", type=name_option, help="a user, or `default` for all others")
    parser.add_argument("--client-id", metavar="NAME", type=name_option, help="a client id, or `default`")
    parser.add_argument("--ip", metavar="ADDRESS", type=name_option, help="an address, or `default`")


def _finish(parser: argparse.ArgumentParser, action: str, function: str) -> None:
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command(f"quota {action}", "quota_commands", function))
