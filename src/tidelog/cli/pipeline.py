"""`tidelog pipeline`: run, check, watch and stop pipelines on Spark."""

import argparse

from tidelog.cli.client_command import seconds_option
from tidelog.pipelines.running.state import STATE_VARIABLE, default_state_directory

TEMPLATES = {
    "minimal": "copy a topic to another one",
    "topic-to-table": "a topic of JSON into a Delta table, exactly once",
    "enrichment": "join a topic with a file, and totals per minute to another topic",
}
DEFAULT_TEMPLATE = "topic-to-table"
STOP_TIMEOUT_S = 60.0

DESCRIPTION = """\
A pipeline brings records from topics and files, through SQL and Python, into tables and topics. It is one TOML file,
or a Python module with a function build(spark), and runs on Spark: pip install 'tidelog[spark]'.
"""
EPILOG = """\
The first one:
  tidelog pipeline new            writes a commented example, topic-to-table.toml
  tidelog pipeline check FILE     finds all mistakes before anything starts
  tidelog pipeline run FILE       runs it until Ctrl-C
"""
RUN_DESCRIPTION = """\
Run a pipeline until Ctrl-C (or `tidelog pipeline stop`), which lets the batch under way end. Started again, it goes on
where it was. With --once it works off what is there now, and ends.
"""
CHECK_DESCRIPTION = """\
Check everything about a pipeline that can be known before Spark starts: the file, the views that its steps and sinks
read, schemas, Python functions, packages, files, directories, and whether brokers answer and have the topics.
All mistakes are listed with their lines. The exit code is 0 if there are none.
"""
REPLAY_DESCRIPTION = """\
Read a pipeline's topics again and build its tables anew, beside the ones in use, whose contents are replaced in one
step when the new ones are complete. The pipeline may run meanwhile, if its file was not changed since it was started;
afterwards it goes on where it is. The table then holds what the steps make of the records from --from on, and nothing
else. A replay that is interrupted leaves the table as it was, and may be repeated.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "pipeline",
        help="bring topics into tables and other topics, on Spark",
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
        help="write a commented example that runs",
        description=f"Write a commented example that runs as it is. The templates:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("template", metavar="TEMPLATE", nargs="?", default=DEFAULT_TEMPLATE, help="(%(default)s)")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where to write it (TEMPLATE.toml)")
    parser.set_defaults(run=lambda options: _carry_out("new", options))


def _add_check(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("check", help="find all mistakes before anything starts", description=CHECK_DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="a .toml file, or a .py module with build(spark)")
    parser.add_argument("--offline", action="store_true", help="ask no brokers")
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _carry_out("check", options))


def _add_run(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser("run", help="run a pipeline until Ctrl-C", description=RUN_DESCRIPTION)
    parser.add_argument("file", metavar="FILE", help="a .toml file, or a .py module with build(spark)")
    parser.add_argument("--once", action="store_true", help="work off what is there now, then end")
    parser.add_argument("--master", metavar="URL", help="Spark's master (local[*]: all cores of this machine)")
    parser.add_argument("--metrics", metavar="PORT", type=port_option, help="show metrics for Prometheus on this port")
    parser.add_argument("--no-view", action="store_true", help="only lines of what happens, nothing redrawn")
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _carry_out("run", options))


def _add_list(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "list", help="list the pipelines that have run here", description="List the pipelines that have run here."
    )
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _carry_out("list", options))


def _add_status(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "status",
        help="show how pipelines are doing",
        description="Show how a pipeline is doing: its process, its last progress and, if it failed, why. Without a"
        " name: all of them.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _carry_out("status", options))


def _add_stop(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "stop",
        help="stop a running pipeline in good order",
        description="Stop a running pipeline: the batch under way ends, then the process. Returns when it has stopped.",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds_option, default=STOP_TIMEOUT_S, help="how long to wait (%(default).0f s)"
    )
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _carry_out("stop", options))


def _add_replay(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = actions.add_parser(
        "replay", help="build tables anew from an earlier time or offset", description=REPLAY_DESCRIPTION
    )
    parser.add_argument("pipeline", metavar="FILE|NAME", help="the file, or the name of a pipeline that has run here")
    parser.add_argument(
        "--from",
        metavar="TIME|OFFSET",
        dest="start",
        help='earliest, a time such as 2026-01-31T12:00:00Z, an offset, or offsets such as {"orders": {"0": 23}} (where'
        " the pipeline's sources start)",
    )
    parser.add_argument("--sink", metavar="NAME", help="only this table (all tables of the pipeline)")
    parser.add_argument("--yes", action="store_true", help="even if rows of older records are then gone from the table")
    parser.add_argument("--master", metavar="URL", help="Spark's master (local[*]: all cores of this machine)")
    _add_state_option(parser)
    parser.set_defaults(run=lambda options: _carry_out("replay", options))


def _add_state_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        metavar="DIR",
        default=default_state_directory(),
        help=f"where checkpoints and states are kept (%(default)s; the variable {STATE_VARIABLE} changes that)",
    )


def port_option(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"expected a port, found {text!r}")
    return int(text)


def _carry_out(action: str, options: argparse.Namespace) -> int:
    from tidelog.cli.pipeline_commands import carry_out

    return carry_out(action, options)
