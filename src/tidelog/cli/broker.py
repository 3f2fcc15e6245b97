"""`tidelog broker`: one broker in the foreground, until Ctrl-C or SIGTERM.

Imports only argparse: every `tidelog` command imports this module.
"""

import argparse


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "broker",
        help="run one broker",
        description="Run one broker until Ctrl-C or SIGTERM. Settings have Kafka's names. --set overrides --config.",
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
        help="lowest level that is logged (info)",
    )
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        help="log to this file instead of standard error; rotated at 10 MiB, three old files are kept",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.broker_process import run_broker

    return run_broker(options.config, options.overrides, options.log_level, options.log_file)
