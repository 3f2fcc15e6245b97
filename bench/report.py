"""Turns the newest results of each part into docs/performance.md and its plots: `python -m bench.report`."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from bench import results
from bench.figures import Figure, Goal, ratio
from bench.measures import Measure
from bench.parts import PARTS, Part
from bench.results import Results

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "performance.md"
NOTES = Path(__file__).resolve().parent / "notes.md"
OURS, PEER = "tidelog", "kafka"
NEARLY_EVEN = 0.995
"""Below it Tidelog is behind; two figures are hardly ever the same."""

INTRODUCTION = """\
# Performance

Made by `make bench`; do not edit. Tidelog and Apache Kafka (KRaft, its own defaults and JVM flags, 1 GB heap), measured
in one run on one machine, with the same client (`rdkafka_performance`, and small programs against librdkafka and raw
sockets) on the same cores. Median of the rounds [lowest..highest]; fresh processes, alternating order, `sync` before
every run. MB and GB are powers of ten, of record values. CPU is the brokers' alone. The ratio is Tidelog / Kafka:
where less is better, a ratio below 1 is in Tidelog's favour.

A machine with few cores shows Kafka at its worst: one Tidelog broker is one event loop and uses one core, Kafka uses as
many as there are. Read the figures as "per core".
"""

RATIO = "The ratio is left / right: above 1 is better for rates (.../s), below 1 for everything else."

PAGE_CACHE = """\
Memory was full of cached pages before every run, as on a machine that has been up for a while. On a fresh virtual
machine the first use of a page costs several times as much as the write itself.
"""


def number(value: float) -> str:
    """Three significant digits, thousands separated."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def figure_text(found: Figure | None, bytes_each: int = 0) -> str:
    if found is None:
        return "-"
    text = number(found.value)
    if found.lowest != found.highest:
        text += f" [{number(found.lowest)}..{number(found.highest)}]"
    return text + (f" ({number(found.value * bytes_each / 1e6)} MB/s)" if bytes_each else "")


def goal_text(goal: Goal | None) -> str:
    if goal is None:
        return ""
    sign = "<=" if goal.kind == "at most" else ">="
    return f"{sign} {number(goal.limit)}" + (f" x {goal.of_title}" if goal.of else "")


def verdict(measure: Measure, run: Results) -> str:
    met = measure.goal.is_met(measure.id, run.samples, OURS, PEER, measure.percent) if measure.goal else None
    return {True: "met", False: "**missed**", None: ""}[met]


def figure(measure: Measure, run: Results, peer: str) -> Figure | None:
    return Figure.of(run.samples.get(measure.id, {}).get(peer, []), measure.percent)


def row(measure: Measure, run: Results) -> list[str]:
    ours, theirs = figure(measure, run, OURS), figure(measure, run, PEER)
    quotient = ratio(ours, theirs)
    return [
        measure.title,
        measure.unit,
        figure_text(ours, measure.bytes_each),
        figure_text(theirs, measure.bytes_each),
        "-" if quotient is None else number(quotient),
        goal_text(measure.goal),
        verdict(measure, run),
    ]


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def sections(measures: list[Measure], run: Results, titles: Mapping[str, str]) -> str:
    header = ["measure", "unit", titles.get(OURS, "Tidelog"), titles.get(PEER, "Kafka"), "ratio", "goal", ""]
    names = dict.fromkeys(measure.section for measure in measures)
    parts = []
    for name in names:
        rows = [row(measure, run) for measure in measures if measure.section == name]
        parts.append(f"## {name}\n\n{table(header, rows)}")
    return "\n".join(parts)


def page(runs: Mapping[str, Results], notes: str) -> str:
    parts = [INTRODUCTION, behind_text(runs), *(part_text(PARTS[name], run) for name, run in runs.items())]
    if notes:
        parts.append(notes)
    return "\n".join(parts)


def behind_text(runs: Mapping[str, Results]) -> str:
    """Where the peer is ahead, the furthest first."""
    found = [
        (value, measure, run, run.peers | dict(PARTS[name].titles))
        for name, run in runs.items()
        for measure in PARTS[name].measures(run.sizes)
        if (value := advantage(measure, run)) is not None and value < NEARLY_EVEN
    ]
    header = ["", "measure", "unit", "ours", "theirs", "ahead of us", "by"]
    rows = [
        [
            measure.section,
            measure.title,
            measure.unit,
            figure_text(figure(measure, run, OURS)),
            figure_text(figure(measure, run, PEER)),
            titles.get(PEER, "Kafka"),
            f"{number(1 / value)} x",
        ]
        for value, measure, run, titles in sorted(found, key=lambda each: each[0])
    ]
    title = "## Where others are ahead\n\n"
    return title + (table(header, rows) if rows else "Nowhere in these runs.\n")


def part_text(part: Part, run: Results) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in run.machine.items())
    commit = f" at commit `{run.commit}`" if run.commit else ""
    about = f"Taken {run.date[:10]}{commit}, {run.rounds} round{'s' if run.rounds > 1 else ''}. Machine: {machine}.\n"
    if run.sizes.fills_page_cache:
        about += PAGE_CACHE
    about += part.about
    titles = run.peers | dict(part.titles)
    name, rest = sections(part.measures(run.sizes), run, titles).split("\n", 1)
    texts = [f"{name}\n", about, f"![How many times better than {titles.get(PEER, 'Kafka')}]({part.plot})", rest]
    if failures := [failure for failure in run.failures if _is_of(failure, part, run)]:
        texts.append("### Failed runs\n\n" + "".join(f"- {failure}\n" for failure in failures))
    return "\n".join(texts)


def _is_of(failure: str, part: Part, run: Results) -> bool:
    return any(f", {scenario.name}, " in failure for scenario in part.scenarios(run.sizes))


def advantage(measure: Measure, run: Results) -> float | None:
    """How many times better Tidelog is than its peer; below 1 it is worse."""
    quotient = ratio(figure(measure, run, OURS), figure(measure, run, PEER))
    if not quotient:
        return None
    return quotient if measure.better == "higher" else 1 / quotient


def plot(part: Part, run: Results, path: Path) -> bool:
    """A bar per measure; False where there is nothing to compare."""
    found = [(measure.title, advantage(measure, run)) for measure in part.measures(run.sizes)]
    bars = [(title, value) for title, value in found if value is not None and value > 0]
    if not bars:
        return False
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    titles, values = zip(*reversed(bars), strict=True)
    drawing, axes = pyplot.subplots(figsize=(11, 1.5 + 0.26 * len(bars)))
    lengths = [value - 1 for value in values]
    axes.barh(titles, lengths, left=1, color=["#2a7f9e" if value >= 1 else "#c9703b" for value in values])
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.margins(y=0.01)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"times better than {(run.peers | dict(part.titles)).get(PEER, 'Kafka')} (logarithmic)")
    axes.tick_params(labelsize=8)
    for position, value in enumerate(values):
        axes.annotate(f" {number(value)}", (max(value, 1), position), va="center", fontsize=7)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(drawing)
    return True


def write() -> bool:
    """False where no part has results."""
    runs = {name: run for name in PARTS if (run := results.newest(name)) is not None}
    for name, run in runs.items():
        plot(PARTS[name], run, PAGE.with_name(PARTS[name].plot))
    if runs:
        PAGE.write_text(page(runs, NOTES.read_text() if NOTES.exists() else ""))
        print(f"wrote {PAGE.relative_to(REPOSITORY)}")
    return bool(runs)


def summary(run: Results) -> str:
    """The same rows for a terminal, section by section, of what was measured."""
    blocks = [block for name in run.parts for block in _blocks(PARTS[name], run)]
    rows = [cells for _, cells_of_block in blocks for cells in cells_of_block]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = [f"{title}\n" + "\n".join(_aligned(cells, widths) for cells in found) for title, found in blocks]
    return "\n\n".join([*texts, RATIO])


def _blocks(part: Part, run: Results) -> list[tuple[str, list[list[str]]]]:
    titles = run.peers | dict(part.titles)
    header = ["", "unit", titles.get(OURS, "Tidelog"), titles.get(PEER, "Kafka"), "ratio", "goal", ""]
    found: dict[str, list[list[str]]] = {}
    for measure in part.measures(run.sizes):
        if run.samples.get(measure.id):
            found.setdefault(measure.section, [header]).append(row(measure, run))
    return list(found.items())


def _aligned(cells: list[str], widths: list[int]) -> str:
    texts = (cell.strip("*").ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  " + "  ".join(texts).rstrip()


def measures_of(run: Results) -> list[Measure]:
    return [measure for name in run.parts for measure in PARTS[name].measures(run.sizes)]


def main() -> int:
    if not write():
        print("there are no results of a full run yet: make bench writes some", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
