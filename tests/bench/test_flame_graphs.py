"""Flame graphs: samples of a broker, stacks added up, and the drawing."""

import re
import sys
from pathlib import Path

from bench.flame_drawing import drawing, tree
from bench.flame_graphs import DIRECTORY, FLAME_GRAPHS
from bench.sampled_broker import Sampler, name_of

FOLDED = [
    "main (tidelog/cli/main.py);BaseEventLoop._run_once (asyncio/base_events.py);f (tidelog/server/a.py) 6",
    "main (tidelog/cli/main.py);BaseEventLoop._run_once (asyncio/base_events.py);g (tidelog/storage/b.py) 3",
    "Thread.run (threading.py) 1",
]


def test_stacks_are_added_up_from_the_event_loop_on() -> None:
    root = tree(FOLDED)
    loop = root.children["BaseEventLoop._run_once (asyncio/base_events.py)"]
    assert (root.count, loop.count) == (10, 9)
    assert {name: child.count for name, child in loop.children.items()} == {
        "f (tidelog/server/a.py)": 6,
        "g (tidelog/storage/b.py)": 3,
    }


def test_drawing_has_a_box_for_each_frame_that_is_wide_enough() -> None:
    svg = drawing(tree([*FOLDED, "hardly <ever> (x.py) 0"]), "a < b")
    assert "a &lt; b (10 samples)" in svg
    assert re.findall(r"<title>(\w)[^:]*: (\S+) %", svg) == [
        ("a", "100.0"),
        ("B", "90.0"),
        ("f", "60.0"),
        ("g", "30.0"),
        ("T", "10.0"),
    ]
    assert "ever" not in svg


def test_sampler_writes_folded_stacks_without_directories_of_the_machine(tmp_path: Path) -> None:
    sampler = Sampler()
    for _ in range(3):
        sampler.sample(0, sys._getframe())
    sampler.end(tmp_path / "1.folded")
    (line,) = (tmp_path / "1.folded").read_text().splitlines()
    assert line.endswith(" 3")
    assert name_of(Path.exists.__code__) == "Path.exists (pathlib.py)"


def test_published_graphs_are_small_and_name_no_machine() -> None:
    for name in FLAME_GRAPHS:
        text = (DIRECTORY / f"{name}.svg").read_text()
        assert len(text) < 150_000
        assert "(/" not in text
