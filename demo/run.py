"""`make demo`, or `python -m demo.run`: the tour. Exit code 0 only if everything held."""

import argparse
import os
import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from demo.commands import CommandFailed
from demo.narrator import Narrator
from demo.reading import ReadingFailed
from demo.tour import Plan, Tour
from demo.writing import WritingFailed
from tools.ports import NoFreePorts

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEPT = ("shop.toml", "table", "pipeline.txt", "audit.html", "audit.json", "summary.json", "logs")
"""What a tour leaves in the output directory, and the next one takes away."""


def main() -> int:
    plan = _plan()
    narrator = Narrator()
    _listen()
    narrator.text("Tidelog: a tour of about a minute and a half. Ctrl-C ends it, and nothing is left running.")
    try:
        holds = _run(plan, narrator)
    except KeyboardInterrupt:
        narrator.text("Broken off; nothing is left running.")
        return INTERRUPTED
    except (CommandFailed, NoFreePorts, ReadingFailed, WritingFailed) as error:
        narrator.heading("The tour could not go on")
        narrator.text(str(error))
        narrator.text(f"The logs are in {os.path.relpath(plan.output / 'logs')}.")
        return 1
    _print_end(plan, narrator, holds)
    return 0 if holds else 1


def _run(plan: Plan, narrator: Narrator) -> bool:
    with ExitStack() as stack:
        place = tempfile.TemporaryDirectory(prefix="tidelog-demo-", ignore_cleanup_errors=True)
        directory = Path(stack.enter_context(place))
        _make_room(plan.output)
        tour = Tour(plan, directory, narrator, stack)
        stack.callback(tour.keep_logs)
        return tour.run()


def _print_end(plan: Plan, narrator: Narrator, holds: bool) -> None:
    outcome = "Everything held" if holds else "Something did not hold"
    narrator.text("")
    narrator.text(
        f"{outcome}, in {narrator.elapsed_s:.0f} s. No process is left, and the brokers' data is deleted. Kept:"
    )
    shown = os.path.relpath(plan.output)
    for name, what in (
        ("audit.html", "the audit's report, for a browser"),
        ("summary.json", "what is said above, for programs"),
        ("table", "the Delta table"),
        ("shop.toml", "the pipeline"),
        ("logs", "what brokers and pipeline logged; docs/failover.md reads such logs"),
    ):
        narrator.to_paste([f"{f'{shown}/{name}':<32}  {what}"])


def _make_room(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        path = output / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _listen() -> None:
    """The first signal ends the tour; while it cleans up, further ones are of no use."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        os.write(1, b"\n   Ending what was started ...\n")  # past Python's buffer, which may be in use just now
        raise KeyboardInterrupt

    for number in SIGNALS:
        signal.signal(number, interrupt)


def _plan() -> Plan:
    parser = argparse.ArgumentParser(prog="python -m demo.run", description="The tour of Tidelog.")
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="what is kept (%(default)s)")
    parser.add_argument("--rate", type=int, default=1_000, help="orders a second (%(default)s)")
    parser.add_argument("--phase", type=float, default=6.0, help="seconds to watch each part (%(default)s)")
    options = parser.parse_args()
    return Plan(options.output.absolute(), options.rate, options.phase)


if __name__ == "__main__":
    raise SystemExit(main())
