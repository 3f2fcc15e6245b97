"""`make soak`: three brokers under steady work for some minutes; memory, descriptors, latencies and errors."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from tests.soak.soak import Report, soak

HEADINGS = f"{'':<20}{'done':<44}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>10}  errors"
USAGE_HEADINGS = (
    f"{'':<20}{'memory MB: first':>18}{'most':>8}{'last':>8}{'descriptors: first':>22}{'most':>8}{'last':>8}"
)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _break_off)
    parser = argparse.ArgumentParser(prog="python -m tests.soak.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--records-per-s", type=int, default=2000, help="of the stream (2000)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave data and logs here")
    options = parser.parse_args()
    print(f"three brokers for {options.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidelog-soak-") as temporary:
        directory = options.keep or Path(temporary)
        report = soak(options.minutes * 60, directory / "data", _say, records_per_s=options.records_per_s)
    print("\n".join(table(report)))
    return 0 if report.is_good else 1


def table(report: Report) -> list[str]:
    lines = ["", HEADINGS]
    for row in report.rows:
        done = ", ".join(f"{count:,} {what}" for what, count in sorted(row.done.items()))
        errors = ", ".join(f"{count} {error}" for error, count in sorted(row.errors.items())) or "none"
        lines.append(f"{row.name:<20}{done:<44}{row.p50_ms:>9.1f}{row.p99_ms:>9.1f}{row.max_ms:>10.1f}  {errors}")
    lines += ["", USAGE_HEADINGS]
    for name, samples in report.usage.items():
        memory = [sample.memory_bytes >> 20 for sample in samples] or [0]
        descriptors = [sample.descriptors for sample in samples] or [0]
        lines.append(
            f"{name:<20}{memory[0]:>18,}{max(memory):>8,}{memory[-1]:>8,}"
            f"{descriptors[0]:>22,}{max(descriptors):>8,}{descriptors[-1]:>8,}"
        )
    lines += [
        "",
        f"librdkafka's own race (INVALID_TXN_STATE when it aborts right after a commit): {report.known_races}",
    ]
    lines += [f"  {problem}" for problem in report.problems[:30]]
    return [*lines, f"{'PASSED' if report.is_good else 'FAILED'} after {report.seconds:.0f} s"]


def _break_off(number: int, _frame: object) -> NoReturn:
    """The way out ends all brokers."""
    raise SystemExit(128 + number)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
