"""Output of `tidelog up` while the brokers run: a live display in a terminal, one line per change elsewhere."""

import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from tidelog.cli.local_cluster.report import problem_lines, urgency, verdict_lines
from tidelog.cli.local_cluster.view import (
    ClusterView,
    PartitionView,
    broker_lines,
    changes,
    partition_lines,
    reason_lines,
)
from tidelog.terminal.colours import paint_for
from tidelog.terminal.live_display import LiveDisplay, supports_live_display, write_line

MIN_PARTITION_LINES = 3
MAX_PROBLEM_LINES = 8


class Screen(Protocol):
    def show(self, view: ClusterView) -> None: ...

    def say(self, line: str) -> None:
        """Prints a line that stays above the live display."""
        ...


class PlainScreen:
    """Output to a file or a pipe: one line per change."""

    def __init__(self, output: TextIO) -> None:
        self._output = output
        self._last: ClusterView | None = None

    def show(self, view: ClusterView) -> None:
        for line in changes(self._last, view):
            self.say(line)
        self._last = view

    def say(self, line: str) -> None:
        write_line(self._output, line)


class TerminalScreen:
    def __init__(self, output: TextIO, footer: str) -> None:
        self._drawing = LiveDisplay(output, paint_for(output))
        self._footer = footer

    def show(self, view: ClusterView) -> None:
        columns, rows = shutil.get_terminal_size()
        self._drawing.show(["", *picture(view, columns - 1, rows - 3), "", self._footer])

    def say(self, line: str) -> None:
        self._drawing.say(line)


def picture(view: ClusterView, columns: int, rows: int) -> list[str]:
    """As much as fits: all brokers, then partitions, unhealthy ones first."""
    sentences = [*verdict_lines(view), *problem_lines(view)[:MAX_PROBLEM_LINES]]
    wrapped = [line for each in sentences for line in textwrap.wrap(each, columns, subsequent_indent="  ")]
    head = [*wrapped, "", *broker_lines(view, columns), ""]
    room = max(MIN_PARTITION_LINES, rows - len(head) - 2)
    worth_showing = [partition for partition in view.partitions if partition.is_shown_by_default]
    ordered = sorted(worth_showing, key=urgency)
    shown = _fitting(ordered, room, lambda partition: 1 + len(reason_lines(partition, view.at_ms, columns)))
    lines = head + partition_lines(shown, view.at_ms, columns)
    if len(shown) < len(ordered):
        lines.append(f"... and {len(ordered) - len(shown)} more partitions; `tidelog status` lists all")
    return lines


def _fitting(
    partitions: Sequence[PartitionView], room: int, lines_of: Callable[[PartitionView], int]
) -> list[PartitionView]:
    shown: list[PartitionView] = []
    used = 1
    for partition in partitions:
        used += lines_of(partition)
        if used > room and shown:
            break
        shown.append(partition)
    return shown


def make_screen(footer: str) -> Screen:
    if supports_live_display(sys.stdout):
        return TerminalScreen(sys.stdout, footer)
    return PlainScreen(sys.stdout)
