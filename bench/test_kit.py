"""Test clusters side by side: `python -m bench.test_kit`; tidelog.testing, librdkafka's mock and kfake.

The client is confluent-kafka for all of them. A first cluster is timed in a fresh process, from the call to the first
acknowledged produce; with imports, from `import tidelog.testing`. Modules are compiled, as pip leaves them. kfake is a
Go program: its build does not count, its start does.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

REPOSITORY = Path(__file__).parent.parent
KFAKE = Path(__file__).parent / "kfake"
TIMEOUT_S = 60
PART_S = 120
FRESH_CLUSTERS = 100
GOALS_S = {
    "first": 0.25,
    "first, with imports": 0.25,
    "first, three brokers": 0.5,
    "first, three brokers, with imports": 0.5,
    "next": 0.06,
    "a group's first message": 0.3,
    "reset": 0.02,
    f"{FRESH_CLUSTERS} fresh clusters": 10.0,
}


class Kit(ABC):
    """One way to get a cluster in a test."""

    @abstractmethod
    def open(self, brokers: int) -> str:
        """Bootstrap servers of a new cluster."""

    def reset(self) -> None:
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None: ...


class TidelogKit(Kit):
    is_process = False

    def open(self, brokers: int) -> str:
        from tidelog.testing import Cluster

        self._cluster = Cluster(brokers, process=self.is_process).open()
        return self._cluster.bootstrap_servers

    def reset(self) -> None:
        self._cluster.reset()

    def close(self) -> None:
        self._cluster.close()


class TidelogProcessKit(TidelogKit):
    is_process = True


class MockKit(Kit):
    """librdkafka's mock lives in a client, whose metadata has its addresses."""

    def open(self, brokers: int) -> str:
        from confluent_kafka import Producer

        self._owner = Producer({"test.mock.num.brokers": brokers, "log_level": 0})
        found = self._owner.list_topics(timeout=TIMEOUT_S).brokers.values()
        return ",".join(f"{broker.host}:{broker.port}" for broker in found)

    def close(self) -> None:
        del self._owner


class KfakeKit(Kit):
    def __init__(self) -> None:
        self._program = kfake_program()
        self._process: subprocess.Popen[str] | None = None

    def open(self, brokers: int) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        return self._ask(f"open {brokers}")

    def close(self) -> None:
        self._ask("close")

    def _ask(self, text: str) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


KITS: dict[str, Callable[[], Kit]] = {
    "tidelog.testing": TidelogKit,
    "tidelog.testing, process": TidelogProcessKit,
    "librdkafka's mock": MockKit,
    "kfake": KfakeKit,
}


def kfake_program() -> str:
    program = Path(tempfile.gettempdir()) / "tidelog-bench-kfake"
    if not program.exists():
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=KFAKE, check=True)
    return str(program)


def produce(bootstrap: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    failures: list[Any] = []
    producer.produce("tides", b"low", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failures, failures


def consume_in_group(bootstrap: str, group: str) -> None:
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe(["tides"])
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            consumer.close()
            return
    raise TimeoutError("the group got no message")


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure_first(name: str, brokers: int) -> dict[str, float]:
    """In a fresh process. The client is imported before, as a test would have."""
    import confluent_kafka  # noqa: F401

    def load() -> None:
        if name.startswith("tidelog"):
            from tidelog.testing import Cluster  # noqa: F401

    title = "first" if brokers == 1 else "first, three brokers"
    imports_s = timed(load)
    kit = KITS[name]()
    first_s = timed(lambda: produce(kit.open(brokers)))
    kit.close()
    return {title: first_s, f"{title}, with imports": imports_s + first_s}


def measure_next(name: str) -> dict[str, float]:
    """In a process that has had a cluster."""
    kit = KITS[name]()
    produce(kit.open(1))
    kit.close()
    found = {"next": timed(lambda: produce(kit.open(1)))}
    kit.close()
    address = kit.open(1)
    produce(address)
    found["a group's first message"] = timed(lambda: consume_in_group(address, "readers"))
    if isinstance(kit, TidelogKit):
        found["reset"] = median(timed(kit.reset) for _ in range(10))
    kit.close()

    def many() -> None:
        for _ in range(FRESH_CLUSTERS):
            produce(kit.open(1))
            kit.close()

    found[f"{FRESH_CLUSTERS} fresh clusters"] = timed(many)
    return found


def in_fresh_process(name: str, part: str) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.test_kit", "--kit", name, "--part", part]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=PART_S, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"{name}: not done within {PART_S} s", file=sys.stderr)
        return {}
    if done.returncode != 0:
        print(f"{name}: {done.stderr.strip().rpartition(chr(10))[2]}", file=sys.stderr)
        return {}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare test clusters on this machine.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kit", choices=tuple(KITS))
    parser.add_argument("--part", choices=("1", "3", "next"))
    options = parser.parse_args()
    if options.kit and options.part:
        found = measure_next(options.kit) if options.part == "next" else measure_first(options.kit, int(options.part))
        print(json.dumps(found))
        return
    kits = [name for name in KITS if name != "kfake" or shutil.which("go")]
    samples: dict[str, dict[str, list[float]]] = {}
    in_fresh_process("tidelog.testing", "1")  # compiles the modules
    for _ in range(options.rounds):
        for name in kits:
            for part in ("1", "3", "next"):
                for title, value in in_fresh_process(name, part).items():
                    samples.setdefault(title, {}).setdefault(name, []).append(value)
    print(table(samples, kits))


def table(samples: dict[str, dict[str, list[float]]], kits: list[str]) -> str:
    lines = [f"| ms | {' | '.join(kits)} | goal |", f"|---|{'---|' * (len(kits) + 1)}"]
    for title, by_kit in samples.items():
        cells = [f"{median(by_kit[kit]) * 1000:,.0f}" if kit in by_kit else "" for kit in kits]
        goal = f"{GOALS_S[title] * 1000:,.0f}" if title in GOALS_S else ""
        lines.append(f"| {title} | {' | '.join(cells)} | {goal} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
