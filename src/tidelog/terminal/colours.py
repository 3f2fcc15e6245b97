"""Colours of a report in a terminal, by the words of a line. Lines are cut to the width of the screen before."""

import os
import re
from collections.abc import Callable, Mapping
from typing import TextIO

RESET = "\x1b[0m"
BOLD, RED, YELLOW, GREEN = "\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[32m"
RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(not writable|failed|error)\b"), BOLD + RED),
    (re.compile(r"^(degraded|warning)\b"), BOLD + YELLOW),
    (re.compile(r"^(healthy|ok)\b"), BOLD + GREEN),
    (re.compile(r"\b(no leader|does not answer|is down|are down|is offline|suspended)\b"), RED),
    (re.compile(r"(?<= )(down|silent|none|OFFLINE)(?= )"), RED),
    (re.compile(r"(?<= )(starting|paused)(?= )"), YELLOW),
    (re.compile(r"\b(under-replicated|out of sync|unhealthy|refuses? acks=all|replicas? missing)\b"), YELLOW),
)
TITLES = re.compile(r"\s*[A-Z][A-Z ]+")
Paint = Callable[[str], str]


def painted(line: str) -> str:
    """The line with escape sequences for its colours."""
    if TITLES.fullmatch(line):
        return f"{BOLD}{line}{RESET}"
    for pattern, colour in RULES:
        line = pattern.sub(lambda found, colour=colour: f"{colour}{found[0]}{RESET}", line)  # type: ignore[misc]
    return line


def plain(line: str) -> str:
    return line


def paint_for(output: TextIO, environment: Mapping[str, str] = os.environ) -> Paint:
    """Colours only on a terminal that has them, and unless NO_COLOR is set (https://no-color.org)."""
    has_colours = output.isatty() and environment.get("TERM", "dumb") != "dumb" and not environment.get("NO_COLOR")
    return painted if has_colours else plain
