"""Flame graph as SVG from folded stacks (`frame;frame;frame count`), small enough for the repository.

What is narrower than a fifth of a percent is left out. The brokers of a cluster are added up.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH = 1200
ROW = 16
TOP = 44
CHARACTER_WIDTH = 6.2
LEAST_SHARE = 0.002
ROOT = "BaseEventLoop._run_once "
"""Frames below the event loop are the same for all."""

COLOURS = {
    "tidelog/server": "#e8a33d",
    "tidelog/protocol": "#d9705a",
    "tidelog/storage": "#5b9bd5",
    "tidelog/kernels": "#5b9bd5",
    "tidelog/replication": "#6fb06f",
    "tidelog/client": "#9c83c9",
    "tidelog/runtime": "#c9b458",
    "": "#b8b8b8",
}
"""By the beginning of a file's path; what belongs to Python itself is grey."""


@dataclass
class Node:
    name: str
    count: int = 0
    children: dict[str, "Node"] = field(default_factory=dict)

    def add(self, frames: list[str], count: int) -> None:
        self.count += count
        if frames:
            self.children.setdefault(frames[0], Node(frames[0])).add(frames[1:], count)


def tree(folded: Iterable[str]) -> Node:
    """With the event loop at the bottom."""
    root = Node("all")
    for line in folded:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        begin = next((index for index, frame in enumerate(frames) if frame.startswith(ROOT)), 0)
        root.add(frames[begin:], int(count))
    return root


def drawing(root: Node, title: str) -> str:
    least = root.count * LEAST_SHARE
    depth = _depth(root, least)
    height = TOP + (depth + 1) * ROW
    rows = "".join(_boxes(root, 0.0, height - ROW, WIDTH / max(root.count, 1), root.count, least))
    legend = "".join(
        f'<rect x="{8 + 150 * number}" y="24" width="10" height="10" fill="{colour}"/>'
        f'<text x="{22 + 150 * number}" y="33">{name or "Python"}</text>'
        for number, (name, colour) in enumerate(COLOURS.items())
        if name != "tidelog/kernels"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace"'
        ' font-size="10">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>\n'
        f'<text x="8" y="16" font-size="13">{escape(title)} ({root.count} samples)</text>\n{legend}\n{rows}</svg>\n'
    )


def _depth(node: Node, least: float) -> int:
    return 1 + max((_depth(each, least) for each in node.children.values() if each.count >= least), default=0)


def _boxes(node: Node, left: float, bottom: int, scale: float, total: int, least: float) -> Iterable[str]:
    width = node.count * scale
    shown = node.name[: max(0, int((width - 4) / CHARACTER_WIDTH))]
    yield (
        f"<g><title>{escape(node.name)}: {100 * node.count / max(total, 1):.1f} %</title>"
        f'<rect x="{left:.1f}" y="{bottom}" width="{max(width - 0.5, 0.3):.1f}" height="{ROW - 1}"'
        f' fill="{_colour(node.name)}"/>'
    )
    yield f'<text x="{left + 2:.1f}" y="{bottom + 11}">{escape(shown)}</text></g>\n' if len(shown) > 2 else "</g>\n"
    for each in sorted(node.children.values(), key=lambda child: child.name):
        if each.count >= least:
            yield from _boxes(each, left, bottom - ROW, scale, total, least)
        left += each.count * scale


def _colour(name: str) -> str:
    place = name.partition(" (")[2]
    return next(colour for start, colour in COLOURS.items() if place.startswith(start))
