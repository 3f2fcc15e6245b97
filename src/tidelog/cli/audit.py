"""`tidelog audit`: integrity check of all replicas of a cluster, from the files in its log directories."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.client_command import number_option

if TYPE_CHECKING:
    from tidelog.audit.audit_run import Runner
    from tidelog.audit.report import Report

DESCRIPTION = """\
Read every segment of every replica in parallel on Spark. Check the CRC of each batch, check that offsets and leader
epochs have no gaps, and check that the replicas of a partition are identical up to the high watermark. Brokers may
keep running. Exit code 0: clean, 2: faults were found, 1: the audit could not run.
"""
EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS = 0, 1, 2
MAX_LINES = 20
SPARK_SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "audit", help="check that all replicas are complete and identical", description=DESCRIPTION
    )
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="the data directory of `tidelog up`, or log directories"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML report with plots to FILE")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON to FILE")
    parser.add_argument(
        "--topic",
        metavar="PATTERN",
        action="append",
        default=[],
        help="only topics that match; * and ? are wildcards; may be repeated",
    )
    parser.add_argument(
        "--compacted",
        metavar="PATTERN",
        action="append",
        default=[],
        help="compacted topics, where gaps are expected; needed if there is no cleaner-offset-checkpoint",
    )
    parser.add_argument("--master", metavar="M", help="Spark master URL (default: local[*])")
    parser.add_argument("--no-keys", action="store_true", help="do not decode records to count keys")
    parser.add_argument(
        "--hot-keys",
        metavar="N",
        type=number_option,
        default=10,
        help="number of most frequent keys to list (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # The audit reports damaged files as findings; do not log them as well.
    logging.getLogger("tidelog.storage").addHandler(logging.NullHandler())
    return run_on(options, _spark_runner)


def run_on(options: argparse.Namespace, open_runner: "Callable[[str | None], AbstractContextManager[Runner]]") -> int:
    try:
        from tidelog.audit.directories import CannotAudit
    except ImportError as error:
        return _fail(_missing(error))
    try:
        _validate_arguments(options)
        with open_runner(options.master) as runner:
            report = _audit(options, runner)
        _write(options, report)
    except (CannotAudit, OSError) as error:
        return _fail(str(error))
    except ImportError as error:
        return _fail(_missing(error))
    _print(report)
    return EXIT_CLEAN if report.is_clean else EXIT_FINDINGS


def _missing(error: ImportError) -> str:
    return f"{error.name} is missing; `pip install 'tidelog[spark]'` installs what the audit needs"


def _fail(sentence: str) -> int:
    print(f"tidelog audit: {sentence}", file=sys.stderr)
    return EXIT_FAILED


def _validate_arguments(options: argparse.Namespace) -> None:
    """Fails on invalid arguments before Spark is started."""
    from tidelog.audit.directories import CannotAudit, find_log_dirs

    for file in (options.report, options.json):
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise CannotAudit(f"cannot write {file}: its directory does not exist")
    find_log_dirs(options.data)


@contextmanager
def _spark_runner(master: str | None) -> "Iterator[Runner]":
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from tidelog.audit.directories import CannotAudit
    from tidelog.audit.job import SparkRunner
    from tidelog.spark import session
    from tidelog.spark.java import WrongJava

    try:
        if sys.stderr.isatty():
            print("starting Spark", file=sys.stderr)
        spark = session("tidelog audit", master, SPARK_SETTINGS)
        try:
            spark.sparkContext.setLogLevel("ERROR")
            yield SparkRunner(spark)
        finally:
            spark.stop()
    except (PySparkException, Py4JError) as error:
        raise CannotAudit(f"Spark failed: {_reason(str(error))}") from error
    except WrongJava as error:
        raise CannotAudit(str(error)) from error


def _reason(text: str) -> str:
    """The line with the Java exception if there is one; the stack trace does not help the user."""
    lines = text.strip().splitlines() or ["no reason given"]
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0])


def _audit(options: argparse.Namespace, runner: "Runner") -> "Report":
    import time

    from tidelog.audit.audit_run import AuditOptions, audit
    from tidelog.audit.report import Report
    from tidelog.audit.summary import summarise

    asked = AuditOptions(options.data, options.topic, options.compacted, counts_keys=not options.no_keys)
    began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
    found = audit(asked, runner)
    return Report(found, summarise(found, options.hot_keys), began_ms, time.monotonic() - began)


def _write(options: argparse.Namespace, report: "Report") -> None:
    from tidelog.audit.report import as_html, as_json

    if options.json is not None:
        Path(options.json).write_text(as_json(report))
    if options.report is not None:
        Path(options.report).write_text(as_html(report))


def _print(report: "Report") -> None:
    for finding in report.audit.faults[:MAX_LINES]:
        where = f"broker {finding.broker}" if finding.broker is not None else finding.log_dir
        place = f"{finding.file or finding.log_dir}" + (
            f" byte {finding.position}" if finding.position is not None else ""
        )
        print(f"{finding.kind.value}: {where}, {finding.topic_partition or '-'}: {finding.sentence}\n  {place}")
    if len(report.audit.faults) > MAX_LINES:
        print(f"and {len(report.audit.faults) - MAX_LINES} more; --json FILE lists all")
    print(report.verdict)
