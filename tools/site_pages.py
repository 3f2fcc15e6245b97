"""Hooks of the documentation site: pages that live outside docs/, and links to them.

mkdocs builds pages of docs/ only. ARCHITECTURE.md, CHANGELOG.md and CONTRIBUTING.md stay where readers of the
repository look for them; the list of decisions is made from their titles.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
DECISIONS = "decisions/index.md"
MOVED = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages at the top of the repository, and where the site has them."""


def on_config(config: Any) -> Any:
    """Puts the decisions into the navigation."""
    for section in config.nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            section[title] = [_with_decisions(page) for page in pages]
    return config


def _with_decisions(page: Any) -> Any:
    if page != DECISIONS:
        return page
    return {"Decisions": [DECISIONS, *(f"decisions/{path.name}" for path in _decisions())]}


def on_files(files: Files, config: Any) -> Files:
    for name, page in MOVED.items():
        files.append(File.generated(config, page, content=_from_docs((ROOT / name).read_text())))
    titles = [f"- [{_title(path)}]({path.name})" for path in _decisions()]
    content = "# Decisions\n\nWhy it is built this way, a page for each decision.\n\n" + "\n".join(titles) + "\n"
    files.append(File.generated(config, DECISIONS, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    for name, page in MOVED.items():
        markdown = markdown.replace(f"](../{name}", f"]({page}")
    return markdown.replace("](decisions)", f"]({DECISIONS})")


def _from_docs(text: str) -> str:
    """Links as seen from docs/. The licence is no page: its name stays, the link goes."""
    text = re.sub(r"\[([^\]]+)\]\(LICENSE\)", r"\1", text)
    for name, page in MOVED.items():
        text = text.replace(f"]({name}", f"]({page}")
    return text.replace("](docs/", "](").replace("](decisions)", f"]({DECISIONS})")


def _decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "decisions").glob("0*.md"))


def _title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix("# ")
