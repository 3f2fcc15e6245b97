"""The client side: builds librdkafka's own performance program and our latency program, runs them, reads their output.

The sources of librdkafka come with an npm package that ships them together with the examples.
"""

import re
import shutil
import subprocess
from array import array
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".cache" / "node-rdkafka"
NPM_PACKAGE = "node-rdkafka@3.6.1"
SOURCES = CACHE / "node_modules" / "node-rdkafka" / "deps" / "librdkafka"
PERFORMANCE = SOURCES / "examples" / "rdkafka_performance"
LATENCY = CACHE / "latency"
LATENCY_SOURCE = Path(__file__).resolve().parent / "latency.c"
LIBRARY = SOURCES / "src" / "librdkafka.a"
LEFT_OUT = ("ssl", "gssapi", "curl", "zstd", "zlib", "lz4-ext")
RUN_LIMIT_S = 600

PRODUCED = re.compile(r"% (\d+) messages produced \((\d+) bytes\), (\d+) delivered \(.*?(\d+) failed\) in (\d+)ms")
CONSUMED = re.compile(r"% (\d+) messages \((\d+) bytes\) consumed in (\d+)ms")


class ClientUnavailable(Exception):
    """The client programs cannot be built here; the message says what is missing."""


class ClientFailed(Exception):
    """A client program did not do what it was asked for."""


@dataclass(frozen=True)
class Transfer:
    records: int
    value_bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def gigabytes(self) -> float:
        return self.value_bytes / 1e9


def ensure_built() -> None:
    """Builds what is not built yet (a minute or two, once)."""
    if missing := [program for program in ("npm", "gcc", "g++", "make") if shutil.which(program) is None]:
        raise ClientUnavailable(f"the client needs {', '.join(missing)}: install nodejs with npm, gcc, g++ and make")
    if not PERFORMANCE.exists():
        _build_performance()
    if not LATENCY.exists() or LATENCY.stat().st_mtime < LATENCY_SOURCE.stat().st_mtime:
        _build_latency()


def _build_performance() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "package.json").write_text('{"private": true}\n')
    print("fetching librdkafka's sources with npm", flush=True)
    _do(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", NPM_PACKAGE], CACHE)
    print("building rdkafka_performance, once", flush=True)
    _do(["./configure", *(f"--disable-{feature}" for feature in LEFT_OUT)], SOURCES)
    _do(["make", "-C", "src", "-j2", "librdkafka.a"], SOURCES)
    _do(["make", "-C", "examples", "rdkafka_performance"], SOURCES)


def _build_latency() -> None:
    command = ["gcc", "-O2", f"-I{LIBRARY.parent}", str(LATENCY_SOURCE), str(LIBRARY), "-o", str(LATENCY)]
    _do([*command, "-lm", "-ldl", "-lpthread", "-lrt"], CACHE)


def _do(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClientUnavailable(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


def produce(bootstrap: str, topic: str, records: int, value_bytes: int, options: dict[str, str], acks: int) -> Transfer:
    command = [str(PERFORMANCE), "-P", "-t", topic, "-b", bootstrap, "-s", str(value_bytes), "-c", str(records)]
    return parse_produced(_run([*command, "-a", str(acks), *_settings(options)]), records)


def consume(bootstrap: str, topic: str, partitions: int, records: int) -> Transfer:
    command = [str(PERFORMANCE), "-C", "-t", topic, "-b", bootstrap, "-o", "beginning", "-c", str(records)]
    for partition in range(partitions):
        command += ["-p", str(partition)]
    return parse_consumed(_run(command), records)


def _settings(options: dict[str, str]) -> list[str]:
    return [part for key, value in options.items() for part in ("-X", f"{key}={value}")]


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
    )
    return done.stdout


def parse_produced(output: str, expected_records: int) -> Transfer:
    """The last summary line, if every record was delivered."""
    matches = PRODUCED.findall(output)
    if not matches:
        raise ClientFailed(f"no summary in:\n{output[-2000:]}")
    _sent, _sent_bytes, delivered, failed, milliseconds = map(int, matches[-1])
    if delivered != expected_records or failed:
        raise ClientFailed(f"{delivered} of {expected_records} records delivered, {failed} failed:\n{output[-2000:]}")
    value_bytes = delivered * (_sent_bytes // max(_sent, 1))
    return Transfer(delivered, value_bytes, milliseconds / 1000)


def parse_consumed(output: str, expected_records: int) -> Transfer:
    matches = CONSUMED.findall(output)
    if not matches:
        raise ClientFailed(f"no summary in:\n{output[-2000:]}")
    records, value_bytes, milliseconds = map(int, matches[-1])
    if records < expected_records:
        raise ClientFailed(f"{records} of {expected_records} records consumed:\n{output[-2000:]}")
    return Transfer(records, value_bytes, milliseconds / 1000)


@dataclass(frozen=True)
class LatencyRun:
    kind: str
    """ack: until the delivery report; end: until the consumer has it."""
    rate_per_second: int
    linger_ms: int
    partitions: int
    seconds: int
    warm_seconds: int
    value_bytes: int = 1024
    acks: int = 1


def latencies_ms(bootstrap: str, topic: str, run: LatencyRun) -> list[float]:
    """The latency of every record after the warm-up, sorted."""
    numbers = (
        run.rate_per_second,
        run.seconds,
        run.warm_seconds,
        run.value_bytes,
        run.linger_ms,
        run.partitions,
        run.acks,
    )
    command = [str(LATENCY), bootstrap, topic, run.kind, *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, timeout=RUN_LIMIT_S, check=False)
    if done.returncode != 0:
        raise ClientFailed(done.stderr.decode(errors="replace"))
    nanoseconds = array("q", done.stdout)
    return sorted(value / 1e6 for value in nanoseconds)
