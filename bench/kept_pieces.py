"""Pieces of a benchmark that are done: one scenario on one peer in one round, kept until the code or the sizes change.

A whole benchmark takes hours. One that was interrupted, or was asked for more rounds, goes on where it stopped.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from bench.measures import Sizes
from bench.scenarios import Figures
from tools.code_version import code_version as code_version_of

REPOSITORY = Path(__file__).resolve().parent.parent
DIRECTORY = REPOSITORY / ".cache" / "bench"
MEASURED = ("src", "bench", "tools", "requirements")
"""What a figure depends on: a change to a page does not make it void."""


class Piece(NamedTuple):
    scenario: str
    peer: str
    round_number: int

    @property
    def file_name(self) -> str:
        return f"{self.round_number}-{self.peer}-{self.scenario}.json"


class KeptPiece(NamedTuple):
    date: str
    steps: Sequence[Figures]


class KeptPieces:
    def __init__(self, directory: Path, sizes: Sizes, version: str) -> None:
        digest = hashlib.sha256(json.dumps(asdict(sizes)).encode()).hexdigest()
        self._directory = directory / version / digest[:12]

    def find(self, piece: Piece) -> KeptPiece | None:
        try:
            found = json.loads((self._directory / piece.file_name).read_text())
        except FileNotFoundError:
            return None
        return KeptPiece(found["date"], found["steps"])

    def keep(self, piece: Piece, kept: KeptPiece) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / piece.file_name
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps({**piece._asdict(), "date": kept.date, "steps": list(kept.steps)}, indent=1))
        temporary.replace(path)


def code_version() -> str:
    """Figures of one version are never taken for another's."""
    return code_version_of(*MEASURED)
