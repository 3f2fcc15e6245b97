"""Charts as inline SVG; the colours come from the style of the page."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tidelog.audit.replica_facts import Timeline
from tidelog.audit.text_formats import size_text, time_text

WIDTH = 1000
LABEL_WIDTH = 280
NOTE_WIDTH = 230
ROW_HEIGHT = 26
MARGIN = 12
MAX_LABEL_LENGTH = 38

PLOT_HEIGHT = 160
AXIS_HEIGHT = 28


class Bar(NamedTuple):
    label: str
    value: float
    note: str


def bars(shown: Sequence[Bar]) -> str:
    """Horizontal bars, each with a label on the left and a note on the right."""
    largest = max((bar.value for bar in shown), default=0) or 1
    room = WIDTH - LABEL_WIDTH - NOTE_WIDTH - 2 * MARGIN
    rows = "".join(_bar(bar, number, room * bar.value / largest) for number, bar in enumerate(shown))
    return _svg(rows, len(shown) * ROW_HEIGHT + 2 * MARGIN)


def _bar(bar: Bar, number: int, length: float) -> str:
    top = MARGIN + number * ROW_HEIGHT
    middle, start = top + ROW_HEIGHT / 2 + 4.5, LABEL_WIDTH + MARGIN
    label = bar.label if len(bar.label) <= MAX_LABEL_LENGTH else f"{bar.label[: MAX_LABEL_LENGTH - 1]}…"
    return (
        f"<g><title>{escape(bar.label)}: {escape(bar.note)}</title>"
        f'<text x="{LABEL_WIDTH}" y="{middle}" text-anchor="end">{escape(label)}</text>'
        f'<rect class="bar" x="{start}" y="{top + 4}" width="{max(length, 1):.1f}" height="{ROW_HEIGHT - 8}" rx="2"/>'
        f'<text class="dim" x="{start + max(length, 1) + 8:.1f}" y="{middle}">{escape(bar.note)}</text></g>'
    )


def timeline(shown: Timeline | None) -> str:
    """Column chart of bytes over time. Empty if all bytes are in one column."""
    if shown is None or len(shown.bucket_bytes) < 2:
        return ""
    largest = max(shown.bucket_bytes) or 1
    width = (WIDTH - 2 * MARGIN) / len(shown.bucket_bytes)
    columns = "".join(
        _column(shown, number, MARGIN + number * width, width, PLOT_HEIGHT * size / largest)
        for number, size in enumerate(shown.bucket_bytes)
        if size
    )
    bottom = MARGIN + PLOT_HEIGHT
    end_ms = shown.start_ms + shown.bucket_ms * len(shown.bucket_bytes)
    axis = f'<line class="axis" x1="{MARGIN}" y1="{bottom}" x2="{WIDTH - MARGIN}" y2="{bottom}"/>'
    labels = (
        f'<text class="dim" x="{MARGIN}" y="{bottom + 20}">{time_text(shown.start_ms)}</text>'
        f'<text class="dim" x="{WIDTH - MARGIN}" y="{bottom + 20}" text-anchor="end">{time_text(end_ms)}</text>'
        f'<text class="dim" x="{WIDTH / 2}" y="{bottom + 20}" text-anchor="middle">'
        f"highest column: {size_text(largest)} in {_duration(shown.bucket_ms)}</text>"
    )
    return _svg(columns + axis + labels, bottom + AXIS_HEIGHT)


def _column(shown: Timeline, number: int, left: float, width: float, height: float) -> str:
    title = f"{time_text(shown.start_ms + number * shown.bucket_ms)}: {size_text(shown.bucket_bytes[number])}"
    top = MARGIN + PLOT_HEIGHT - max(height, 1)
    return (
        f'<rect class="bar" x="{left + 1:.1f}" y="{top:.1f}" width="{max(width - 2, 1):.1f}"'
        f' height="{max(height, 1):.1f}"><title>{escape(title)}</title></rect>'
    )


def _duration(duration_ms: int) -> str:
    for unit_ms, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "s")):
        if duration_ms >= unit_ms:
            return f"{duration_ms / unit_ms:.1f} {name}"
    return f"{duration_ms} ms"


def _svg(content: str, height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">{content}</svg>'
