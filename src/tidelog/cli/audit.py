"""`tidelog audit`: check the log directories of all brokers against each other."""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.audit.auditing import Runner
    from tidelog.audit.report import Report

DESCRIPTION = """\
Read every segment of every replica in parallel on Spark: check the CRC of each batch, that offsets and leader epochs
have no gaps, and that the replicas of a partition are identical up to the high watermark. Brokers may run meanwhile.
Exit code 0: clean, 2: something was found, 1: the audit could not run.
"""
EXIT_CLEAN, EXIT_FAILED, EXIT_FINDINGS = 0, 1, 2
MOST_LINES = 20
SPARK_SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "audit", help="check that all replicas are whole and identical", description=DESCRIPTION
    )
    parser.add_argument("data", nargs="+", metavar="DATA", help="the directory of `tidelog up`, or log directories")
    parser.add_argument("--report", metavar="FILE", help="write a report with plots, one HTML file")
    parser.add_argument("--json", metavar="FILE", help="write the same facts as JSON")
    parser.add_argument(
        "--topic", metavar="PATTERN", action="append", default=[], help="only such topics; * and ? match"
    )
    parser.add_argument(
        "--compacted",
        metavar="PATTERN",
        action="append",
        default=[],
        help="topics in which compaction leaves gaps, where no cleaner-offset-checkpoint tells it",
    )
    parser.add_argument("--master", metavar="M", help="the Spark master (local[*])")
    parser.add_argument("--no-keys", action="store_true", help="do not count keys: no record is decoded")
    parser.add_argument("--hot-keys", metavar="N", type=int, default=10, help="how many keys to name (%(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # What a broker would log about damaged files is told as findings.
    logging.getLogger("tidelog.storage").addHandler(logging.NullHandler())
    return run_on(options, _spark_runner)


def run_on(options: argparse.Namespace, open_runner: "Callable[[str | None], AbstractContextManager[Runner]]") -> int:
    try:
        from tidelog.audit.directories import CannotAudit
    except ImportError as error:
        return _fail(_missing(error))
    try:
        _refuse_what_cannot_be(options)
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
    return f"{error.name} is missing; `pip install 'tidelog[spark]'` brings what the audit needs"


def _fail(sentence: str) -> int:
    print(f"tidelog audit: {sentence}", file=sys.stderr)
    return EXIT_FAILED


def _refuse_what_cannot_be(options: argparse.Namespace) -> None:
    """Before Spark starts."""
    from tidelog.audit.directories import CannotAudit, find_log_dirs

    if options.hot_keys < 0:
        raise CannotAudit(f"--hot-keys {options.hot_keys}: give 0 or more")
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
    """The line in which Java names its exception, if there is one; the stack is of no use to anybody here."""
    lines = text.strip().splitlines() or ["no reason given"]
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0])


def _audit(options: argparse.Namespace, runner: "Runner") -> "Report":
    import time

    from tidelog.audit.auditing import AuditOptions, audit
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
    for finding in report.audit.faults[:MOST_LINES]:
        where = f"broker {finding.broker}" if finding.broker is not None else finding.log_dir
        place = f"{finding.file or finding.log_dir}" + (
            f" byte {finding.position}" if finding.position is not None else ""
        )
        print(f"{finding.kind.value}: {where}, {finding.topic_partition or '-'}: {finding.sentence}\n  {place}")
    if len(report.audit.faults) > MOST_LINES:
        print(f"and {len(report.audit.faults) - MOST_LINES} more; --json FILE has all of them")
    print(report.verdict)
