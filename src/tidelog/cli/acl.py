"""`tidelog acl`: permissions of principals."""

import argparse

from tidelog.cli.client_command import add_client_options, add_json_option, client_command, name_option

DESCRIPTION = """\
Rules that allow or deny a principal an operation on topics, groups, transactional ids or the cluster. A rule that
denies wins over all that allow. Rules need brokers with an authorizer (authorizer.class.name).
"""
EPILOG = """\
  tidelog acl add alice read,describe topic orders      for one topic; `*` is all
  tidelog acl add alice read group readers- --prefix    for all groups whose names begin with this
  tidelog acl add bob write topic orders --deny
  tidelog acl add broker-1 clusteraction cluster
  tidelog acl list --principal alice
  tidelog acl explain alice write topic orders          which rule decides, if any
"""
KINDS = ("topic", "group", "transactional-id", "cluster")
OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "clusteraction",
    "describeconfigs",
    "alterconfigs",
    "idempotentwrite",
)


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "acl",
        help="rules that allow and deny access: add, list, remove, explain",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_rule_action(actions, "add", "add rules")
    _add_list(actions)
    _add_rule_action(actions, "remove", "remove the rules that `add` with the same arguments makes")
    _add_explain(actions)


def _add_rule_action(actions: "argparse._SubParsersAction[argparse.ArgumentParser]", action: str, text: str) -> None:
    parser = actions.add_parser(action, help=text, description=f"{text[0].upper()}{text[1:]}.")
    _add_question(parser, operations_help=f"one or more, separated by commas: {', '.join(OPERATIONS)}")
    parser.add_argument("--prefix", action="store_true", help="all resources whose names begin with NAME")
    parser.add_argument("--deny", action="store_true", help="a rule that denies")
    parser.add_argument("--host", metavar="ADDRESS", default="*", help="only from this address (default: from all)")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command(f"acl {action}", "acl_commands", action))


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("list", help="list rules", description="List rules, all or those that match.")
    parser.add_argument("kind", metavar="KIND", choices=KINDS, nargs="?", help=f"one of {', '.join(KINDS)}")
    parser.add_argument("name", metavar="NAME", nargs="?", help="rules that hold for the resource of this name")
    parser.add_argument("--principal", metavar="PRINCIPAL", help="only rules of this principal")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("acl list", "acl_commands", "list_"))


def _add_explain(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "explain",
        help="say whether a principal may do something, and by which rule",
        description="Say whether a principal may do something, and which rule decides.",
    )
    _add_question(parser, operations_help=f"one of {', '.join(OPERATIONS)}")
    parser.add_argument("--host", metavar="ADDRESS", default="*", help="from this address (default: from any)")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("acl explain", "acl_commands", "explain"))


def _add_question(parser: argparse.ArgumentParser, *, operations_help: str) -> None:
    parser.add_argument("principal", metavar="PRINCIPAL", type=name_option, help="a user, such as alice or User:alice")
    parser.add_argument("operations", metavar="OPERATION", type=name_option, help=operations_help)
    parser.add_argument("kind", metavar="KIND", choices=KINDS, help=f"one of {', '.join(KINDS)}")
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the resource; not for kind cluster")
