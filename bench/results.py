"""Results of a benchmark run: a JSON file with every sample and the machine it came from."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measures import Sizes

DIRECTORY = Path(__file__).resolve().parent / "results"
FULL = "full"


@dataclass
class Results:
    name: str
    date: str
    rounds: int
    sizes: Sizes
    machine: dict[str, str]
    peers: dict[str, str]
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=lambda: ["one-broker"])
    commit: str = ""
    """What was measured; early runs do not say so."""

    def add(self, peer: str, figures: Mapping[str, float | Sequence[float]]) -> None:
        for measure, value in figures.items():
            values = [value] if isinstance(value, int | float) else value
            self.samples.setdefault(measure, {}).setdefault(peer, []).extend(values)

    @property
    def path(self) -> Path:
        return DIRECTORY / f"{self.date[:10]}-{self.name}.json"

    def save(self) -> Path:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return self.path


def load(path: Path) -> Results:
    content: dict[str, Any] = json.loads(path.read_text())
    sizes: dict[str, Any] = {key: _frozen(value) for key, value in content.pop("sizes").items()}
    sizes.setdefault("fills_page_cache", False)  # early runs did not, and do not say so
    return Results(sizes=Sizes(**sizes), **content)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def newest(part: str) -> Results | None:
    """The newest run of that part in full, alone or together with the others."""
    paths = [*DIRECTORY.glob(f"*-{FULL}.json"), *DIRECTORY.glob(f"*-{part}.json")]
    runs = [run for run in map(load, paths) if part in run.parts]
    return max(runs, key=lambda run: run.date, default=None)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_machine() -> dict[str, str]:
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory_bytes / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "java": _java_version(),
        "load average": f"{os.getloadavg()[0]:.1f} at the start",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java_version() -> str:
    if shutil.which("java") is None:
        return "none"
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.splitlines()[0] if done.stderr else "unknown"
