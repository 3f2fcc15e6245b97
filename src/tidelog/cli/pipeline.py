"""`tidelog pipeline`: run, check, inspect, stop and replay pipelines on Spark."""

import argparse

from tidelog.cli.client_command import add_json_option, seconds_option
from tidelog.numerals import natural_number
from tidelog.pipelines.running.pipeline_state import STATE_VARIABLE, default_state_directory

TEMPLATES = {
    "minimal": "copy one topic to another",
    "topic-to-table": "load a topic of JSON into a Delta table, exactly once",
    "enrichment": "join a topic with a file, write totals per minute to another topic",
}
DEFAULT_TEMPLATE = "topic-to-table"
STOP_TIMEOUT_S = 60.0

DESCRIPTION = """\
A pipeline reads topics and files, transforms them with SQL and Python, and writes tables and topics. It is one TOML
file, or a Python module with a function build(spark), and runs on Spark: pip install 'tidelog[spark]'.
"""
EPILOG = """\
Your first pipeline:
  tidelog pipeline new            writes a commented example, topic-to-table.toml
  tidelog pipeline check FILE     reports all mistakes
  tidelog pipeline run FILE       runs it until Ctrl-C
"""
RUN_DESCRIPTION = """\
Run a pipeline until Ctrl-C or `tidelog pipeline stop`; the current batch is completed first. The next run continues
where this one stopped. With --once, process the records that exist now, then exit.
"""
CHECK_DESCRIPTION = """\
Check everything that can be checked without running the pipeline: the file, the views that steps and sinks read,
schemas, Python functions, packages, files, directories, that brokers answer and have the topics, and, if nothing else
is wrong, SQL, expressions and columns, which Spark analyses. All mistakes are listed with their lines. The exit code
is 0 if there are none.
"""
REPLAY_DESCRIPTION = """\
Rebuild a pipeline's tables from its topics. New tables are built beside the tables in use, whose contents are then
replaced in one commit. The pipeline may keep running if its file has not changed since it was started; afterwards it
continues where it is. The table then holds the rows of the records from --from on, and no others. An interrupted
replay leaves the table unchanged and can be repeated.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "pipeline",
        help="run pipelines from topics to tables and topics, on Spark",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    for add in (_add_new, _add_check, _add_run, _add_list, _add_status, _add_stop, _add_replay):
        add(actions)


def _add_new(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    listed = "\n".join(f"  {name:<16} {text}" for name, text in TEMPLATES.items())
    parser = actions.add_parser(
        "new",
        help="write a commented example pipeline",
        description=f"Write a commented example pipeline that runs as it is. Templates:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "template", metavar="TEMPLATE", nargs="?", default=DEFAULT_TEMPLATE, help="default: %(default)s"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="file to write (default: TEMPLATE.toml)")
    add_json_option(parser)
    parser.set_defaults(run=lambda options: _run_command("new", options))


def _add_check(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("check", help="check a pipeline without starting it", description=CHECK_DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="a .toml file, or a .py module with build(spark)")
    parser.add_argument("--offline", action="store_true", help="do not connect to brokers")
    parser.add_argument("--no-spark", action="store_true", help="do not ask Spark about SQL and columns (faster)")
    _add_state_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=lambda options: _run_command("check", options))


def _add_run(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("run", help="run a pipeline until Ctrl-C", description=RUN_DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="a .toml file, or a .py module with build(spark)")
    parser.add_argument("--once", action="store_true", help="process the records that exist now, then exit")
    parser.add_argument(
        "--master", metavar="URL", help="Spark master URL (default: local[*], all cores of this machine)"
    )
    parser.add_argument("--metrics", metavar="PORT", type=port_option, help="serve Prometheus metrics on this port")
    parser.add_argument("--no-view", action="store_true", help="print lines only, no live display")
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _run_command("run", options))


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "list",
        help="list the pipelines of this machine",
        description="List the pipelines that have run on this machine.",
    )
    _add_state_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=lambda options: _run_command("list", options))


def _add_status(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "status",
        help="show state and progress of pipelines",
        description="Show the state of a pipeline: process, last progress and, if it failed, the error. Without a name:"
        " all pipelines.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?")
    add_json_option(parser)
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _run_command("status", options))


def _add_stop(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "stop",
        help="stop a running pipeline",
        description="Stop a running pipeline after its current batch. Returns when it has stopped.",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds_option,
        default=STOP_TIMEOUT_S,
        help="how long to wait (default: %(default).0f)",
    )
    _add_state_option(parser)
    add_json_option(parser)
    parser.set_defaults(run=lambda options: _run_command("stop", options))


def _add_replay(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "replay", help="rebuild tables from an earlier time or offset", description=REPLAY_DESCRIPTION
    )
    parser.add_argument(
        "pipeline", metavar="FILE|NAME", help="pipeline file, or name of a pipeline that has run on this machine"
    )
    parser.add_argument(
        "--from",
        metavar="TIME|OFFSET",
        dest="start",
        help='earliest, a time such as 2026-01-31T12:00:00Z, an offset, or offsets such as {"orders": {"0": 23}}'
        " (default: the start of the pipeline's sources)",
    )
    parser.add_argument("--sink", metavar="NAME", help="rebuild only this table (default: all tables of the pipeline)")
    parser.add_argument("--yes", action="store_true", help="proceed even if the table loses rows of older records")
    parser.add_argument(
        "--master", metavar="URL", help="Spark master URL (default: local[*], all cores of this machine)"
    )
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _run_command("replay", options))


def _add_state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        metavar="DIR",
        default=default_state_directory(),
        help=f"directory of checkpoints and states (default: %(default)s; set {STATE_VARIABLE} to change it)",
    )


def port_option(text: str) -> int:
    port = natural_number(text)
    if port is None or not 0 < port < 65536:
        raise argparse.ArgumentTypeError(f"expected a port number, found {text!r}")
    return port


def _run_command(action: str, options: argparse.Namespace) -> int:
    from tidelog.cli.pipeline_commands import run_command

    return run_command(action, options)
