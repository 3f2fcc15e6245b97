"""What `tidelog up` shows while the brokers run: a picture drawn anew in a terminal, lines of changes elsewhere."""

import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from tidelog.cli.local_cluster.view import (
    ClusterView,
    PartitionView,
    broker_lines,
    changes,
    partition_lines,
    reason_lines,
    summary_lines,
)
from tidelog.terminal.live_display import Drawing, can_be_drawn_on, write_line

FEWEST_PARTITION_LINES = 3


class Screen(Protocol):
    def show(self, view: ClusterView) -> None: ...

    def say(self, line: str) -> None:
        """Something that stays."""
        ...


class PlainScreen:
    """For a file or a pipe: what changed, a line each."""

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
        self._drawing = Drawing(output)
        self._footer = footer

    def show(self, view: ClusterView) -> None:
        columns, rows = shutil.get_terminal_size()
        self._drawing.show(["", *picture(view, columns - 1, rows - 3), "", self._footer])

    def say(self, line: str) -> None:
        self._drawing.say(line)


def picture(view: ClusterView, columns: int, rows: int) -> list[str]:
    """As much as fits: brokers always; of the partitions first those that are not whole."""
    head = [*broker_lines(view, columns), "", *summary_lines(view)]
    room = max(FEWEST_PARTITION_LINES, rows - len(head) - 2)
    worth_showing = [partition for partition in view.partitions if partition.is_worth_showing]
    ordered = sorted(worth_showing, key=lambda partition: partition.is_healthy)
    shown = _that_fit(ordered, room, lambda partition: 1 + len(reason_lines(partition, view.at_ms, columns)))
    lines = head + partition_lines(sorted(shown, key=lambda partition: partition.topic_partition), view.at_ms, columns)
    if len(shown) < len(ordered):
        lines.append(f"... and {len(ordered) - len(shown)} more partitions: `tidelog status` lists all")
    return lines


def _that_fit(
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
    if can_be_drawn_on(sys.stdout):
        return TerminalScreen(sys.stdout, footer)
    return PlainScreen(sys.stdout)
