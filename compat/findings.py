"""Findings of one part of the compatibility run, kept with the commit that they belong to.

A whole run takes an hour or more. One that was interrupted goes on where it stopped; a part that failed is repeated,
and the page says how often. Findings of two commits never stand on one page.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compat import matrix, spark_page
from compat.answers.check import Comparison
from compat.matrix import Outcome

REPOSITORY = Path(__file__).resolve().parent.parent
DIRECTORY = REPOSITORY / ".cache" / "compat-findings"
TRIED = ("src", "compat", "tests", "tools", "requirements")
"""What a finding depends on."""


@dataclass
class Findings:
    outcomes: list[Outcome] = field(default_factory=list)
    tools: dict[tuple[str, str], str] = field(default_factory=dict)
    """The fault (or nothing) by tool and version."""
    files: dict[str, list[str]] = field(default_factory=dict)
    responses: list[Comparison] = field(default_factory=list)
    on_spark: list[spark_page.Finding] = field(default_factory=list)
    releases: dict[str, str] = field(default_factory=dict)
    """Of clients."""

    def add(self, other: "Findings") -> None:
        self.outcomes += other.outcomes
        self.tools |= other.tools
        for title, wrong in other.files.items():
            self.files.setdefault(title, []).extend(wrong)
        self.responses += other.responses
        self.on_spark += other.on_spark
        self.releases |= other.releases

    def faults(self) -> list[str]:
        found = [f"{name}, {version}: {fault}" for (name, version), fault in self.tools.items() if fault]
        found += [f"{title}: {complaint}" for title, wrong in self.files.items() for complaint in wrong[:10]]
        found += [fault for one in self.responses for fault in one.faults]
        return found + spark_page.faults(self.on_spark)

    @property
    def is_good(self) -> bool:
        return not self.faults() and not matrix.remarks(self.outcomes)

    def as_json(self) -> dict[str, Any]:
        tools = [[*key, fault] for key, fault in self.tools.items()]
        return asdict(self) | {"tools": tools, "responses": [asdict(one) for one in self.responses]}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "Findings":
        return cls(
            outcomes=[Outcome(**one) for one in kept["outcomes"]],
            tools={(name, version): fault for name, version, fault in kept["tools"]},
            files=kept["files"],
            responses=[Comparison(**one) for one in kept["responses"]],
            on_spark=[spark_page.Finding(**one) for one in kept["on_spark"]],
            releases=kept["releases"],
        )


@dataclass(frozen=True)
class Kept:
    findings: Findings
    date: str
    tries: int


class KeptFindings:
    """Of one version of the code."""

    def __init__(self, directory: Path, version: str) -> None:
        self.version = version
        self._directory = directory / version

    def find(self, part: str) -> Kept | None:
        try:
            kept = json.loads(self._path(part).read_text())
        except FileNotFoundError:
            return None
        return Kept(Findings.from_json(kept["findings"]), kept["date"], kept["tries"])

    def keep(self, part: str, findings: Findings, date: str) -> Kept:
        before = self.find(part)
        kept = Kept(findings, date, before.tries + 1 if before else 1)
        self._directory.mkdir(parents=True, exist_ok=True)
        temporary = self._path(part).with_suffix(".tmp")
        content = {"part": part, "date": date, "tries": kept.tries, "findings": findings.as_json()}
        temporary.write_text(json.dumps(content, indent=1))
        temporary.replace(self._path(part))
        return kept

    def all_of(self, parts: Sequence[str]) -> dict[str, Kept] | None:
        """None while the findings of a part are missing."""
        found = {part: self.find(part) for part in parts}
        kept = {part: one for part, one in found.items() if one is not None}
        return kept if len(kept) == len(parts) else None

    def _path(self, part: str) -> Path:
        return self._directory / f"{hashlib.sha256(part.encode()).hexdigest()[:16]}.json"


def together(parts: Iterable[Findings]) -> Findings:
    whole = Findings()
    for findings in parts:
        whole.add(findings)
    return whole
