"""`tidelog broker`: run one broker until it is told to stop. Imports little: every command passes here."""

import argparse


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "broker",
        help="run one broker",
        description="Run one broker until Ctrl-C or SIGTERM. Settings have Kafka's names; flags win over the file.",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="overrides", help="one setting; may be repeated"
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="how much to tell on standard error (info)",
    )
    parser.add_argument(
        "--log-file",
        metavar="FILE",
        help="write to this file instead of standard error; it rotates at 10 MiB, and three older ones are kept",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tidelog.cli.broker_process import run_broker

    return run_broker(options.config, options.overrides, options.log_level, options.log_file)
