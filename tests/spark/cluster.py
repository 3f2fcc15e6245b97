"""A standalone cluster of Spark on the loopback address: a master and workers as processes of the PySpark package."""

import os
import re
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pyspark

from tests.kills.process_tree import command_of, descendants, kill_tree
from tidelog.runtime.process_identity import ProcessIdentity
from tidelog.spark.java import choose_java

SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
HOST = "127.0.0.1"
ON_FREE_PORTS = ("--host", HOST, "--port", "0", "--webui-port", "0")
START_LIMIT_S = 180.0
POLL_S = 0.05


class StandaloneCluster:
    def __init__(self, directory: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self.master = ""
        self._directory = directory
        self._worker_count = workers
        self._shape = ("--cores", str(cores), "--memory", memory)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "StandaloneCluster":
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Workers come when they are ready: an application waits for the first of them."""
        self._launch("master", MASTER, *ON_FREE_PORTS)
        self.master = self._said("master", rf"Starting Spark master at (spark://{HOST}:\d+)")
        for number in range(1, self._worker_count + 1):
            name = f"worker-{number}"
            work = str(self._directory / name)
            self._launch(name, WORKER, *ON_FREE_PORTS, *self._shape, "--work-dir", work, self.master)

    def executors(self) -> list[ProcessIdentity]:
        """The Java processes that run tasks, of all applications and workers."""
        found = [started for process in self._processes[1:] for started in descendants(process.pid)]
        return [process for process in found if _is_executor(command_of(process))]

    def kill(self) -> None:
        for process in self._processes:
            kill_tree(process.pid)
            process.wait()
        self._processes.clear()

    def output(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def _launch(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("ab") as output:
            process = subprocess.Popen([SPARK_CLASS, *command], stdout=output, stderr=output, env=self._environment())
        self._processes.append(process)

    def _environment(self) -> dict[str, str]:
        choose_java()
        return os.environ | {
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
            "SPARK_LOCAL_DIRS": str(self._directory),
        }

    def _said(self, name: str, pattern: str) -> str:
        process = self._processes[-1]
        deadline = time.monotonic() + START_LIMIT_S
        while (found := re.search(pattern, self.output(name))) is None:
            assert process.poll() is None, f"{name} ended:\n{self.output(name)}"
            assert time.monotonic() < deadline, f"{name} does not come up:\n{self.output(name)}"
            time.sleep(POLL_S)
        return found[1]


def _is_executor(command: str) -> bool:
    """Not the script that becomes one."""
    return EXECUTOR in command and "/java " in command.split(EXECUTOR)[0]
