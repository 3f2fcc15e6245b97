"""`tidelog user`: users that log in with a password (SCRAM)."""

import argparse

from tidelog.cli.client_command import add_client_options, add_json_option, client_command, name_option

DESCRIPTION = """\
Users of the cluster, who log in with a password (SCRAM). `tidelog acl` says what they may do.
"""
EPILOG = """\
  tidelog user add alice                          makes a password and prints it
  tidelog user passwd alice --password-file FILE  the first line of a file; - for standard input
  tidelog user list
  tidelog user remove alice                       connections that are open stay until they log in again
"""
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "user",
        help="add, list and remove users",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_password_action(actions, "add", "add a user")
    _add_password_action(actions, "passwd", "change the password of a user")
    listed = actions.add_parser("list", help="list the users", description="List the users and their mechanisms.")
    _finish(listed, "list")
    removed = actions.add_parser("remove", help="remove a user", description="Remove a user.")
    removed.add_argument("name", metavar="NAME", type=name_option)
    _finish(removed, "remove")


def _add_password_action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, description: str
) -> None:
    parser = actions.add_parser(name, help=description, description=f"{description.capitalize()}.")
    parser.add_argument("name", metavar="NAME", type=name_option)
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        help="file with the password in its first line, - for standard input (default: a new password, printed)",
    )
    parser.add_argument(
        "--mechanism", choices=MECHANISMS, action="append", help="mechanisms to log in by (default: both)"
    )
    _finish(parser, name)


def _finish(parser: argparse.ArgumentParser, action: str) -> None:
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command(f"user {action}", "user_commands", f"{action}_user"))
