"""Broker process that records the long steps of its event loop, in processor time.

Waits of others depend on what else the machine does; the processor time of the longest step does so much less. A
second thread looks at long steps, so that each line shows where the step was.
"""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tidelog.cli.main import main

REPORT_VARIABLE = "TIDELOG_SIEGE_STEPS"
REPORTED_S = 0.02
WATCH_S = 0.01
MAX_FRAMES = 12
PREFIX = "src/tidelog/"


class StepRecorder:
    """Appends a line for each long step: its milliseconds of processor time, and the stacks seen meanwhile."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._loop_thread = threading.main_thread().ident or 0
        self._number = 0
        self._is_running = False
        self._seen: list[str] = []

    def install(self) -> None:
        run = asyncio.Handle._run

        def measured(handle: asyncio.Handle) -> None:
            if threading.get_ident() != self._loop_thread:
                run(handle)
                return
            self._number += 1
            self._is_running = True
            began_s = time.thread_time()
            try:
                run(handle)
            finally:
                self._is_running = False
                spent_s = time.thread_time() - began_s
                if spent_s >= REPORTED_S:
                    self._write(handle, spent_s)
                if self._seen:
                    self._seen = []

        asyncio.Handle._run = measured  # type: ignore[method-assign,assignment]
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            number = self._number
            time.sleep(WATCH_S)
            if self._is_running and self._number == number:
                frame = sys._current_frames().get(self._loop_thread)
                if frame is not None:
                    self._seen.append(_stack_of(frame))

    def _write(self, handle: asyncio.Handle, spent_s: float) -> None:
        seen = " | ".join(self._seen) or repr(handle)[:200]
        with self._report.open("a") as report:
            report.write(f"{spent_s * 1000:.0f} {seen}\n")


def _stack_of(frame: FrameType) -> str:
    """Innermost functions of the project first."""
    shown = [
        f"{each.filename.rpartition(PREFIX)[2]}:{each.lineno} {each.name}"
        for each in reversed(traceback.extract_stack(frame))
        if PREFIX in each.filename
    ]
    return " < ".join(shown[:MAX_FRAMES])


def run(arguments: Sequence[str]) -> int:
    StepRecorder(Path(os.environ[REPORT_VARIABLE])).install()
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
