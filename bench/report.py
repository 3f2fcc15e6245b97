"""Turns a results file into docs/performance.md and its plot: `python -m bench.report [results file]`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from bench import results
from bench.figures import Figure, Goal, ratio
from bench.measures import Measure, measures_for
from bench.results import Results

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "performance.md"
PLOT = REPOSITORY / "docs" / "performance.png"
NOTES = Path(__file__).resolve().parent / "notes.md"
OURS, PEER = "tidelog", "kafka"

INTRODUCTION = """\
# Performance

Made by `make bench`; do not edit. Tidelog and Apache Kafka (KRaft, its own defaults and JVM flags, 1 GB heap), measured
in one run on one machine, with the same client (`rdkafka_performance`, and small programs against librdkafka and raw
sockets) on the same cores. Median of the rounds [lowest..highest]; fresh processes, alternating order, `sync` before
every run. MB and GB are powers of ten, of record values. CPU is the broker's alone. The ratio is Tidelog / Kafka:
where less is better, a ratio below 1 is in Tidelog's favour.

A machine with few cores shows Kafka at its worst: one Tidelog broker is one event loop and uses one core, Kafka uses as
many as there are. Read the figures as "per core".
"""


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def figure_text(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    if figure.lowest == figure.highest:
        return number(figure.median)
    return f"{number(figure.median)} [{number(figure.lowest)}..{number(figure.highest)}]"


def goal_text(goal: Goal | None) -> str:
    if goal is None:
        return ""
    sign = "<=" if goal.kind == "at most" else ">="
    return f"{sign} {number(goal.limit)}" + (f" x {goal.of_title}" if goal.of else "")


def verdict(measure: Measure, run: Results) -> str:
    met = measure.goal.is_met(measure.id, run.samples, OURS, PEER) if measure.goal else None
    return {True: "met", False: "**missed**", None: ""}[met]


def row(measure: Measure, run: Results) -> list[str]:
    samples = run.samples.get(measure.id, {})
    ours, theirs = Figure.of(samples.get(OURS, [])), Figure.of(samples.get(PEER, []))
    quotient = ratio(ours, theirs)
    return [
        measure.title,
        measure.unit,
        figure_text(ours),
        figure_text(theirs),
        "-" if quotient is None else number(quotient),
        goal_text(measure.goal),
        verdict(measure, run),
    ]


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def sections(measures: list[Measure], run: Results) -> str:
    header = ["measure", "unit", run.peers.get(OURS, "Tidelog"), run.peers.get(PEER, "Kafka"), "ratio", "goal", ""]
    names = dict.fromkeys(measure.section for measure in measures)
    parts = []
    for name in names:
        rows = [row(measure, run) for measure in measures if measure.section == name]
        parts.append(f"## {name}\n\n{table(header, rows)}")
    return "\n".join(parts)


def page(run: Results, notes: str) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in run.machine.items())
    about = f"Taken {run.date[:10]}, {run.rounds} round{'s' if run.rounds > 1 else ''}. Machine: {machine}.\n"
    failures = "".join(f"- {failure}\n" for failure in run.failures)
    parts = [INTRODUCTION, about, "![How many times better than Kafka](performance.png)\n"]
    parts.append(sections(measures_for(run.sizes), run))
    if failures:
        parts.append(f"## Failed runs\n\n{failures}")
    if notes:
        parts.append(notes)
    return "\n".join(parts)


def advantage(measure: Measure, run: Results) -> float | None:
    """How many times better Tidelog is than its peer; below 1 it is worse."""
    samples = run.samples.get(measure.id, {})
    quotient = ratio(Figure.of(samples.get(OURS, [])), Figure.of(samples.get(PEER, [])))
    if not quotient:
        return None
    return quotient if measure.better == "higher" else 1 / quotient


def plot(run: Results, path: Path) -> bool:
    """A bar per measure; False where there is nothing to compare."""
    found = [(measure.title, advantage(measure, run)) for measure in measures_for(run.sizes)]
    bars = [(title, value) for title, value in found if value is not None and value > 0]
    if not bars:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    titles, values = zip(*reversed(bars), strict=True)
    drawing, axes = pyplot.subplots(figsize=(11, 1.5 + 0.26 * len(bars)))
    lengths = [value - 1 for value in values]
    axes.barh(titles, lengths, left=1, color=["#2a7f9e" if value >= 1 else "#c9703b" for value in values])
    axes.set_xscale("log")
    axes.margins(y=0.01)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"times better than {run.peers.get(PEER, 'Kafka')} (logarithmic)")
    axes.tick_params(labelsize=8)
    for position, value in enumerate(values):
        axes.annotate(f" {number(value)}", (max(value, 1), position), va="center", fontsize=7)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(drawing)
    return True


def write(run: Results) -> None:
    notes = NOTES.read_text() if NOTES.exists() else ""
    plot(run, PLOT)
    PAGE.write_text(page(run, notes))
    print(f"wrote {PAGE.relative_to(REPOSITORY)}")


def summary(run: Results) -> str:
    """The same rows for a terminal."""
    measures = measures_for(run.sizes)
    header = ["measure", "unit", "Tidelog", "Kafka", "ratio", "goal", ""]
    rows = [header, *(row(measure, run) for measure in measures)]
    widths = [max(len(cells[column]) for cells in rows) for column in range(len(header))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in rows)
    return "\n".join(lines)


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else results.newest("full")
    if path is None:
        print("there is no results file of a full run yet: make bench writes one", file=sys.stderr)
        return 1
    write(results.load(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())
