"""Output of `tidelog pipeline run`: a live display in a terminal, a line every few seconds elsewhere."""

import shutil
import sys
from typing import Protocol, TextIO

from tidelog.pipelines.running.progress import PartitionLag, PipelineProgress, QueryProgress, QueryState
from tidelog.terminal.live_display import LiveDisplay, supports_live_display, write_line
from tidelog.terminal.plurals import plural
from tidelog.terminal.tables import table

PLAIN_LINE_EVERY_S = 10.0
MIN_PARTITION_LINES = 3
UNKNOWN = "-"


class Screen(Protocol):
    def show(self, progress: PipelineProgress) -> None: ...

    def say(self, line: str) -> None:
        """Prints a line that stays above the live display."""
        ...


class QuietScreen:
    """Events only, no progress."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def show(self, progress: PipelineProgress) -> None:
        pass

    def say(self, line: str) -> None:
        write_line(self._output, line)


class PlainScreen(QuietScreen):
    """Output to a file or a pipe: one line every ten seconds, if there was progress."""

    def __init__(self, output: TextIO) -> None:
        super().__init__(output)
        self._shown: PipelineProgress | None = None

    def show(self, progress: PipelineProgress) -> None:
        if is_due(self._shown, progress):
            self.say(summary_line(progress))
            self._shown = progress


class TerminalScreen:
    def __init__(self, output: TextIO, footer: str) -> None:
        self._drawing = LiveDisplay(output)
        self._footer = footer

    def show(self, progress: PipelineProgress) -> None:
        columns, rows = shutil.get_terminal_size()
        self._drawing.show(["", *picture(progress, rows - 4, columns - 1), "", self._footer])

    def say(self, line: str) -> None:
        self._drawing.say(line)


def make_screen(footer: str, *, is_wanted: bool) -> Screen:
    if not is_wanted:
        return QuietScreen(sys.stdout)
    if supports_live_display(sys.stdout):
        return TerminalScreen(sys.stdout, footer)
    return PlainScreen(sys.stdout)


def is_due(shown: PipelineProgress | None, progress: PipelineProgress) -> bool:
    if shown is None:
        return any(query.batches for query in progress.queries)
    if progress.uptime_s - shown.uptime_s < PLAIN_LINE_EVERY_S:
        return False
    return _work(progress) != _work(shown)


def _work(progress: PipelineProgress) -> list[tuple[int, int, str]]:
    return [(query.rows_in, query.rows_out, query.state) for query in progress.queries]


def summary_line(progress: PipelineProgress) -> str:
    """All queries in one line. Each has its own numbers, because queries often read the same topics."""
    parts = [_query_text(query) for query in progress.queries]
    return f"{duration(progress.uptime_s)}  {' | '.join(parts)}{_losses(progress)}"


def _query_text(query: QueryProgress) -> str:
    rates = f"in {rate(query.rows_in_per_second)}/s, out {rate(query.rows_out_per_second)}/s"
    rest = f"lag {count(query.lag)}, batch {milliseconds(query.batch_duration_ms)}"
    return f"{query.name}: {rates}, {plural(query.rows_out, 'row')} written, {rest}"


def picture(progress: PipelineProgress, rows: int, columns: int) -> list[str]:
    """As much as fits: all queries, then partitions, those with the most lag first."""
    head = [f"{progress.name}  running for {duration(progress.uptime_s)}{_losses(progress)}", ""]
    head += _queries(progress, columns)
    lags = worst_lags(progress)
    room = max(MIN_PARTITION_LINES, rows - len(head) - 3)
    shown = sorted(lags, key=lambda lag: -(lag.lag or 0))[:room]
    if not shown:
        return head
    cells = [[f"{lag.topic}-{lag.partition}", count(lag.position), count(lag.lag)] for lag in sorted(shown, key=_place)]
    more = [f"... and {len(lags) - len(shown)} more partitions"] if len(shown) < len(lags) else []
    return [*head, "", *table(("PARTITION", "POSITION", "LAG"), cells), *more]


QUERY_TITLES = ("QUERY", "STATE", "IN/S", "OUT/S", "READ", "WRITTEN", "BATCHES", "LAST BATCH", "LAG", "STATE ROWS", "")

LESS_IMPORTANT = ("READ", "BATCHES", "WRITTEN")
"""Columns dropped first in a narrow terminal."""


def _queries(progress: PipelineProgress, columns: int) -> list[str]:
    titles, rows = list(QUERY_TITLES), [_query_row(query) for query in progress.queries]
    remembers = any(query.state_rows for query in progress.queries)
    for title in LESS_IMPORTANT if remembers else ("STATE ROWS", *LESS_IMPORTANT):
        lines = table(titles, rows)
        if max(map(len, lines)) <= columns:
            return lines
        index = titles.index(title)
        for cells in (titles, *rows):
            del cells[index]
    return table(titles, rows)


def _query_row(query: QueryProgress) -> list[str]:
    return [
        query.name,
        query.state,
        rate(query.rows_in_per_second),
        rate(query.rows_out_per_second),
        count(query.rows_in),
        count(query.rows_out),
        count(query.batches),
        milliseconds(query.batch_duration_ms),
        count(query.lag),
        f"{count(query.state_rows)} ({size(query.state_bytes)})" if query.state_rows else UNKNOWN,
        plural(query.restarts, "restart") if query.restarts else "",
    ]


def _losses(progress: PipelineProgress) -> str:
    dead = f", {plural(progress.dead_letters, 'dead letter')}" if progress.dead_letters else ""
    skipped = f", {plural(progress.skipped_records, 'record')} skipped" if progress.skipped_records else ""
    violated = "".join(f", {name} violated by {plural(rows, 'row')}" for name, rows in violated_of(progress))
    return dead + skipped + violated


def violated_of(progress: PipelineProgress) -> list[tuple[str, int]]:
    return [(name, rows) for name, rows in sorted(progress.violations.items()) if rows]


def worst_lags(progress: PipelineProgress) -> list[PartitionLag]:
    """The largest lag of each partition among all queries."""
    found: dict[tuple[str, int], PartitionLag] = {}
    for query in progress.queries:
        for lag in query.lags if query.state is not QueryState.FAILED else ():
            other = found.get(_place(lag))
            if other is None or lag.position < other.position:
                found[_place(lag)] = lag
    return [found[place] for place in sorted(found)]


def _place(lag: PartitionLag) -> tuple[str, int]:
    return lag.topic, lag.partition


def count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 10 or per_second == 0 else f"{per_second:.1f}"


def milliseconds(duration_ms: int | None) -> str:
    if duration_ms is None:
        return UNKNOWN
    return f"{duration_ms} ms" if duration_ms < 10_000 else f"{duration_ms / 1000:.1f} s"


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def size(number_bytes: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if number_bytes >= unit:
            return f"{number_bytes / unit:.1f} {name}"
    return f"{number_bytes} B"
