"""The two formats that are compared: a Spark driver for each, and one broker with one set of topics for both."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from bench import probes
from bench.measures import Sizes
from bench.peers import KafkaPeer, Peer, Peers, TidelogPeer
from bench.rdkafka import REPOSITORY, ClientFailed
from bench.spark_data import FilledTopic, Slice, fill
from tools import spark_kafka_connector

TITLES = {
    TidelogPeer.name: 'format("tidelog")',
    KafkaPeer.name: f'format("kafka") {spark_kafka_connector.VERSION}',
}
STOP_LIMIT_S = 30
LAST_LINES = 5


class SparkFailed(ClientFailed):
    """A Spark driver did not do what it was asked for."""


class Stage:
    """The broker that all drivers read from, started and filled when it is first needed."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._broker: TidelogPeer | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._filled: dict[tuple[int, bool], FilledTopic] = {}

    @property
    def broker(self) -> TidelogPeer:
        if self._broker is None:
            self._directory = tempfile.TemporaryDirectory(prefix="bench-spark-broker-")
            self._broker = TidelogPeer(Path(self._directory.name))
            self._broker.start()
        return self._broker

    def topic(self, partitions: int, lz4: bool = False) -> FilledTopic:
        found = self._filled.get((partitions, lz4))
        if found is None:
            rows = self._sizes.spark_rows if lz4 else self._sizes.spark_topic_rows
            found = FilledTopic(f"{'lz4' if lz4 else 'plain'}-{partitions}", partitions, rows)
            fill(self.broker.ports[0], found, lz4)
            self._filled[partitions, lz4] = found
        return found

    def create_topic(self, name: str, partitions: int) -> None:
        probes.create_topic(self.broker.ports, name, partitions)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.kill()
            self._broker = None
            self._filled.clear()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None


class SparkPeer(Peer):
    """A driver on the stage. That of Spark's own connector counts as "kafka", though it talks to Tidelog too."""

    def __init__(self, directory: Path, source: str, cores: int, stage: Stage) -> None:
        super().__init__(directory)
        self.cores = cores
        self.stage = stage
        self.session_seconds = 0.0
        self._source = source
        self._process: subprocess.Popen[str] | None = None
        self._answers: IO[str] | None = None

    @property
    def pids(self) -> list[int]:
        return self.stage.broker.pids

    @property
    def ports(self) -> list[int]:
        return self.stage.broker.ports

    @property
    def plain(self) -> FilledTopic:
        return self.stage.topic(self.cores)

    @property
    def lz4(self) -> FilledTopic:
        return self.stage.topic(self.cores, lz4=True)

    def prepare(self) -> None:
        """Neither the download of jars nor the filling of topics counts."""
        spark_kafka_connector.jars()
        _ = self.plain

    def launch(self) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "bench.spark_driver", "--source", self._source]
        command += ["--master", f"local[{self.cores}]", "--bootstrap", self.bootstrap]
        command += ["--directory", str(self.directory), "--answers", str(writing)]
        with (self.directory / "driver.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, pass_fds=(writing,), cwd=REPOSITORY
            )
        os.close(writing)
        self._answers = os.fdopen(reading)

    def start(self) -> float:
        """Starts it; seconds from the exec to the first row."""
        self.prepare()
        started = time.monotonic()
        self.launch()
        self._answer()
        self.session_seconds = time.monotonic() - started
        self.ask_batch("first_row", self.plain.first(self.plain.rows))
        return time.monotonic() - started

    def ask(self, do: str, **question: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **question}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def ask_batch(self, do: str, of: Slice, columns: str = "all", **question: Any) -> dict[str, Any]:
        offsets = {"start": of.starting_offsets, "end": of.ending_offsets}
        return self.ask(do, topic=of.topic, columns=columns, **offsets, **question)

    def _answer(self) -> dict[str, Any]:
        assert self._answers is not None
        line = self._answers.readline()
        if not line:
            raise SparkFailed(f"the driver ended:\n{self.last_words()}")
        response: dict[str, Any] = json.loads(line)
        if "error" in response:
            raise SparkFailed(response["error"])
        return response

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._answers is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._answers.close()
            self._process = None

    def kill(self) -> None:
        """Gently: a driver that is killed leaves its Java behind."""
        self.stop()

    def last_words(self) -> str:
        lines = (self.directory / "driver.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])


def spark_peers(cores: int, stage: Stage) -> Peers:
    makers: dict[str, Callable[[Path], Peer]] = {
        name: partial(SparkPeer, source=name, cores=cores, stage=stage) for name in TITLES
    }
    return makers
