"""`tidelog pipeline run` as a process of its own, with what it says."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.kills.process_tree import command_of, descendants, kill_tree
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.runtime.process_identity import ProcessIdentity

POLL_S = 0.05


class PipelineProcess:
    """Started again after a kill, it goes on from its checkpoint; all runs write to one file."""

    def __init__(self, file: Path, name: str, *arguments: str) -> None:
        self.directory = file.parent
        self.state = PipelineState(self.directory / "state", name)
        self._command = [sys.executable, "-m", "tidelog", "pipeline", "run", str(file), "--no-view"]
        self._command += ["--state", str(self.directory / "state"), *arguments]
        self._output_file = self.directory / f"{name}.output"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, cwd=self.directory)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self, limit_s: float) -> int:
        assert self._process is not None
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the pipeline does not end:\n{self.output_and_log()}") from None

    def stop(self, limit_s: float) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(limit_s)

    def kill(self) -> None:
        """The process with Java and all workers below it, as if the machine had gone."""
        if self._process is not None:
            kill_tree(self._process.pid)
            self._process.wait()
            self._process = None

    def java(self) -> ProcessIdentity | None:
        return next(
            (process for process in self._below() if " org.apache.spark.deploy.SparkSubmit " in command_of(process)),
            None,
        )

    def python_workers(self) -> list[ProcessIdentity]:
        """Of the driver, and of tasks if they run in it."""
        return [process for process in self._below() if is_python_worker(process)]

    def _below(self) -> list[ProcessIdentity]:
        return [] if self._process is None else descendants(self._process.pid)

    def output(self) -> str:
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    def output_and_log(self) -> str:
        """Its output, and the end of its log."""
        log = self.state.log_file.read_text(errors="replace")[-5000:] if self.state.log_file.exists() else ""
        return f"{self.output()}\n...\n{log}"

    def wait_until_said(self, text: str, limit_s: float, start: int = 0) -> None:
        deadline = time.monotonic() + limit_s
        while text not in self.output()[start:]:
            assert self.exit_code() is None, f"the pipeline ended with {self.exit_code()}:\n{self.output_and_log()}"
            assert time.monotonic() < deadline, f"the pipeline does not say {text!r}:\n{self.output_and_log()}"
            time.sleep(POLL_S)


def is_python_worker(process: ProcessIdentity) -> bool:
    return is_command_of_worker(command_of(process))


def is_command_of_worker(command: str) -> bool:
    """Java's command names Python too: the jars are in one of its packages. Forked workers keep their server's."""
    program, _, arguments = command.partition(" ")
    return Path(program).name.startswith("python") and ("pyspark" in arguments or "fork_server" in arguments)
