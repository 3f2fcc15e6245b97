"""Drives the broker with every client, checks files both ways with Apache Kafka, and writes docs/compatibility.md.

It can be interrupted and run again: see `compat/findings.py`.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from compat import matrix
from compat.findings import DIRECTORY, TRIED, Findings, KeptFindings, together
from compat.page import page, sections
from compat.parts import NewBroker, Part, all_parts, client_parts
from tests.clients.broker import ApacheKafkaProcess, TidelogCluster, TidelogProcess
from tests.clients.features import FEATURES
from tests.clients.registry import ClientMissing
from tools.apache_kafka import NotAvailable
from tools.code_version import code_version

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "compatibility.md"


def run_parts(parts: Mapping[str, Part], kept: KeptFindings, *, is_forced: bool = False) -> list[Findings]:
    """What was found before on the same code is not looked for again, unless it was a fault."""
    found = []
    for number, (name, part) in enumerate(parts.items(), 1):
        before = None if is_forced else kept.find(name)
        if before is not None and before.findings.is_good:
            print(f"{number}/{len(parts)} {name}: done before, {before.date}", flush=True)
            found.append(before.findings)
            continue
        print(f"{number}/{len(parts)} {name} ...", flush=True)
        started = time.monotonic()
        findings = findings_of(name, part)
        found.append(findings)
        kept.keep(name, findings, now())
        for fault in findings.faults():
            print(f"  {fault}")
        seconds = time.monotonic() - started
        print(f"{number}/{len(parts)} {name}: {'yes' if findings.is_good else 'NO'} ({seconds:.0f} s)", flush=True)
    return found


def findings_of(name: str, part: Part) -> Findings:
    try:
        return part()
    except (NotAvailable, ClientMissing):
        raise
    except Exception as error:  # noqa: BLE001 - a broker may end in any way, and the others are to be tried
        return Findings(files={name: [f"{type(error).__name__}: {error}"]})


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Try Tidelog with every client we know.")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only parts with this in their name"
    )
    parser.add_argument("--without", action="append", default=[], metavar="TEXT", help="leave out parts with this")
    parser.add_argument("--list", action="store_true", help="print the names of the parts")
    parser.add_argument("--force", action="store_true", help="try again what was good before on this commit")
    parser.add_argument("--features", default="", help="only these of clients, separated by commas; no page is written")
    parser.add_argument("--one-broker", action="store_true", help="clients talk to one broker; no page is written")
    parser.add_argument("--apache-kafka", metavar="VERSION", help="try the suite of clients against Apache Kafka")
    return parser.parse_args()


def chosen(parts: Mapping[str, Part], only: Sequence[str], without: Sequence[str]) -> dict[str, Part]:
    return {
        name: part
        for name, part in parts.items()
        if (not only or any(text in name for text in only)) and not any(text in name for text in without)
    }


def main() -> int:
    options = parse_arguments()
    parts = all_parts()
    is_experiment = bool(options.features or options.one_broker or options.apache_kafka)
    wanted = chosen(experiments(options) if is_experiment else parts, options.only, options.without)
    if options.list or not wanted:
        print(*(wanted or parts), sep="\n")
        return 0 if options.list else 2
    kept = KeptFindings(DIRECTORY, code_version(*TRIED))
    try:
        if is_experiment:
            found = [part() for part in wanted.values()]
        else:
            found = run_parts(wanted, kept, is_forced=options.force)
    except (NotAvailable, ClientMissing) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; run it again on this commit to go on", file=sys.stderr)
        return 130
    whole = together(found)
    print("\n" + "\n".join(sections(whole)))
    if not is_experiment:
        write_page(parts, kept)
    has_failed = bool(whole.faults()) or matrix.has_failed(whole.outcomes)
    return int(has_failed or is_incomplete_in_ci(whole))


def experiments(options: argparse.Namespace) -> dict[str, Part]:
    """Clients with some features, or with another broker; what they find is not kept."""
    new_broker: NewBroker = TidelogProcess
    if options.apache_kafka:
        new_broker = partial(ApacheKafkaProcess, options.apache_kafka)
    is_cluster = not options.apache_kafka and not options.one_broker
    features = [name for name in options.features.split(",") if name] or [
        name for name, feature in FEATURES.items() if is_cluster or not feature.needs_cluster
    ]
    return client_parts(TidelogCluster if is_cluster else new_broker, features)


def write_page(parts: Mapping[str, Part], kept: KeptFindings) -> None:
    found = kept.all_of(list(parts))
    if found is None:
        missing = [name for name in parts if kept.find(name) is None]
        print(f"no page: {len(missing)} of {len(parts)} parts were not run on {kept.version} yet: {'; '.join(missing)}")
        return
    PAGE.write_text(page(found, kept.version))
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")


def is_incomplete_in_ci(found: Findings) -> bool:
    return bool(os.environ.get("CI")) and any(outcome.verdict == "not run" for outcome in found.outcomes)


if __name__ == "__main__":
    sys.exit(main())
