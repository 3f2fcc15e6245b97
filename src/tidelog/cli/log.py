"""`tidelog log`: contents and checks of log files, without a broker."""

import argparse

DUMP_DESCRIPTION = """\
Print what is in log files: batches with their records, indexes, leader epochs, producer snapshots, aborted
transactions and checkpoints, of Tidelog and of Apache Kafka. A directory stands for all files in it. Nothing is
changed; the broker may run. Exit code 0: everything could be read, 1: something is damaged.
"""
VERIFY_DESCRIPTION = """\
Check every batch and record, and indexes, leader epochs, snapshots and checkpoints against them. Takes partition
directories, log directories, or the data directory of `tidelog up`. Exit code 0: sound, 1: damaged. Nothing is
changed. While the broker runs, the end of the last segment may be half written.
"""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "log", help="dump and verify log files, without a broker", description="Dump and verify log files."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    dump = actions.add_parser("dump", help="print the contents of log files", description=DUMP_DESCRIPTION)
    dump.add_argument("paths", metavar="PATH", nargs="+", help="a file, or the directory of a partition")
    dump.add_argument("--batches", action="store_true", help="only batches, without their records")
    dump.add_argument("--json", action="store_true", help="print one line of JSON for each entry, with its file")
    dump.set_defaults(run=_run_dump)
    verify = actions.add_parser("verify", help="find damage in log files", description=VERIFY_DESCRIPTION)
    verify.add_argument("paths", metavar="DIR", nargs="+", help="directories of partitions, or above them")
    verify.add_argument("--json", action="store_true", help="print JSON")
    verify.set_defaults(run=_run_verify)


def _run_dump(options: argparse.Namespace) -> int:
    from tidelog.cli.local_command import run_command
    from tidelog.cli.log_commands import dump

    return run_command("log dump", dump, options)


def _run_verify(options: argparse.Namespace) -> int:
    from tidelog.cli.local_command import run_command
    from tidelog.cli.log_commands import verify

    return run_command("log verify", verify, options)
