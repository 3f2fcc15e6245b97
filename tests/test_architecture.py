"""ARCHITECTURE.md: every dotted name and every path in it exists, and the heading counts the walks."""

import re

import pytest

from tests.test_glossary import PACKAGE, ROOT, _exists

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
QUOTED = sorted(set(re.findall(r"`([^`\n]+)`", PAGE)))
PACKAGES = {path.name.removesuffix(".py") for path in PACKAGE.iterdir()}
NOT_NAMES = {"cluster.backup"}
"""A file in every log directory."""

NAMES = [
    quoted
    for quoted in QUOTED
    if re.fullmatch(r"[a-z_]+(\.\w+)+", quoted)
    and not quoted.endswith((".py", ".md"))
    and quoted.split(".")[0] in PACKAGES
    and quoted not in NOT_NAMES
]
PATHS = [quoted for quoted in QUOTED if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/|[\w./-]+\.(py|md)", quoted)]
NUMBERS = ["Five", "Six", "Seven", "Eight", "Nine", "Ten"]


@pytest.mark.parametrize("name", NAMES)
def test_every_dotted_name_exists(name: str) -> None:
    assert _exists(name), f"ARCHITECTURE.md names {name}, which does not exist"


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    assert any((base / path).exists() for base in (PACKAGE, ROOT)), f"ARCHITECTURE.md names {path}, which is missing"


def test_the_heading_counts_the_walks() -> None:
    found = re.search(r"^## (\w+) walks$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    walks = re.findall(r"^\*\*(\d+)\. ", found[2], re.MULTILINE)
    assert walks == [str(number) for number in range(1, len(walks) + 1)]
    assert NUMBERS.index(found[1]) + 5 == len(walks)


def test_the_table_of_layers_names_every_package_once() -> None:
    found = re.search(r"^## Layers$(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    first_cells = re.findall(r"^\| (`.*?) \|", found[1], re.MULTILINE)
    named = [name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(PACKAGES - {"__init__", "__main__", "py.typed", "__pycache__"})


def test_names_and_paths_are_found_on_the_page() -> None:
    assert len(NAMES) > 50
    assert len(PATHS) > 50
