"""`tidelog broker`: one broker in the foreground, until Ctrl-C or SIGTERM; with an action, the brokers of a cluster."""

import argparse
import sys

from tidelog.cli.broker_disks import add_disks
from tidelog.cli.client_command import add_client_options, add_json_option, client_command, number_option

DESCRIPTION = """\
Without an action: run one broker until Ctrl-C or SIGTERM. Settings have Kafka's names. --set overrides --config.
One broker uses one core: --processes N runs N of them, with ids and ports that count up, and the name of the machine as
broker.rack, so that replicas of a partition are on different machines.
With an action: show the brokers of a cluster, or forget one that is gone for good.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "broker", help="run one broker; list, describe and forget brokers", description=DESCRIPTION
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="set one setting; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="lowest level that is logged (default: info)",
    )
    parser.add_argument(
        "--log-format",
        default="text",
        choices=["text", "json"],
        help="text, or one JSON object per event (default: text)",
    )
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        help="log to this file instead of standard error; rotated at 10 MiB, three old files are kept",
    )
    parser.add_argument(
        "--audit-log",
        metavar="FILE",
        help="failed logins, denied requests and changes of users and permissions go to this file only; rotated alike",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=number_option,
        help="run N brokers, each its own process with data in log.dirs/broker-ID; for a machine with several cores",
    )
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    _add_list(actions)
    _add_describe(actions)
    add_disks(actions)
    _add_forget(actions)


def run(options: argparse.Namespace) -> int:
    if options.processes is not None:
        return _run_processes(options)
    from tidelog.cli.broker_process import run_broker

    log = options.log_level, options.log_file, options.log_format, options.audit_log
    return run_broker(options.config, options.overrides, *log)


def _run_processes(options: argparse.Namespace) -> int:
    from tidelog.cli.broker_processes import MAX_PROCESSES, LogOptions, run_processes

    if not 1 <= options.processes <= MAX_PROCESSES:
        print(
            f"tidelog broker: --processes {options.processes}: must be between 1 and {MAX_PROCESSES}", file=sys.stderr
        )
        return 1
    log = LogOptions(options.log_level, options.log_file, options.log_format, options.audit_log)
    return run_processes(options.processes, options.config, options.overrides, log)


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "list", help="list the brokers of a cluster", description="List the brokers of a cluster with what they host."
    )
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("broker list", "broker_commands", "list_brokers"))


def _add_describe(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "describe",
        help="show one broker: what it hosts, its settings",
        description="Show one broker: address, rack, what it leads and hosts, and the settings that were set.",
    )
    parser.add_argument("broker", metavar="N", type=number_option, help="id of the broker")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("broker describe", "broker_commands", "describe"))


def _add_forget(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "forget",
        help="remove a broker that is gone for good from the cluster",
        description="Remove a broker that is gone for good from the members of the cluster. It must be down and host"
        " no replicas: `tidelog partition move --drain N` moves them to other brokers.",
    )
    parser.add_argument("broker", metavar="N", type=number_option, help="id of the broker")
    add_json_option(parser)
    add_client_options(parser)
    parser.set_defaults(run=client_command("broker forget", "broker_commands", "forget"))
