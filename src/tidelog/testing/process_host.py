"""Test cluster in a background process: brokers that do not share the interpreter lock with the test.

Two pipes: calls of the test, one at a time, and questions of the brokers to functions of the test.
"""

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.testing.host import TIMEOUT_S, ClusterError, ThreadHost

STOP_S = 10.0


class FunctionOfTest(NamedTuple):
    """Stands for a function, which stays in the process of the test."""

    number: int


class Answer(NamedTuple):
    """Outcome of a call."""

    result: Any
    error: Exception | None
    has_mistakes: bool


class ProcessHost:
    """Brokers in one process of their own, which ends with this one."""

    def __init__(self, brokers: int, directory: Path | None, settings: Mapping[str, str]) -> None:
        self._arguments = brokers, directory, dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._calls: Connection[Any, Any] | None = None
        self._lock = threading.Lock()
        self._functions: list[Callable[..., Any]] = []
        self.has_mistakes = False

    def open(self) -> None:
        self._calls, theirs = Pipe()
        questions, their_questions = Pipe()
        descriptors = [theirs.fileno(), their_questions.fileno()]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        code = f"from tidelog.testing.process_host import serve; serve({descriptors[0]}, {descriptors[1]})"
        self._process = subprocess.Popen([sys.executable, "-c", code], env=environment, pass_fds=descriptors)
        theirs.close()
        their_questions.close()
        threading.Thread(target=self._answer_questions, args=[questions], name="tidelog-testing", daemon=True).start()
        self.call("", *self._arguments)  # the first call starts the cluster, and needs no name

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        named = {key: self._kept_here(value) for key, value in named.items()}
        with self._lock:
            assert self._calls is not None
            try:
                self._calls.send((name, arguments, named))
                if not self._calls.poll(TIMEOUT_S):
                    raise ClusterError(f"the cluster did not do this within {TIMEOUT_S:.0f} s; its log says why")
                answer: Answer = self._calls.recv()
            except (EOFError, ConnectionError) as error:
                raise ClusterError("the process of the cluster has ended; its log says why") from error
        self.has_mistakes = answer.has_mistakes
        if answer.error is not None:
            raise answer.error
        return answer.result

    def _kept_here(self, value: Any) -> Any:
        if not callable(value):
            return value
        self._functions.append(value)
        return FunctionOfTest(len(self._functions) - 1)

    def _answer_questions(self, questions: "Connection[Any, Any]") -> None:
        with contextlib.suppress(EOFError, OSError), questions:
            while True:
                number, arguments = questions.recv()
                try:
                    outcome: tuple[Any, str | None] = self._functions[number](*arguments), None
                except Exception as error:  # noqa: BLE001 - raised by the next call of the test
                    outcome = None, f"{type(error).__name__}: {error}"
                questions.send(outcome)

    def close(self) -> None:
        process, calls = self._process, self._calls
        self._process = self._calls = None
        if process is None or calls is None:
            return
        calls.close()  # the process closes its cluster and ends
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class MistakeOfTest(Exception):
    """A function of the test failed."""


def serve(calls_descriptor: int, questions_descriptor: int) -> None:
    """Main function of the process: perform calls until the test closes its end, or is gone."""
    calls: Connection[Any, Any] = Connection(calls_descriptor)
    questions: Connection[Any, Any] = Connection(questions_descriptor)
    host: ThreadHost | None = None
    try:
        while True:
            name, arguments, named = calls.recv()
            named = {key: _with_function(value, questions) for key, value in named.items()}
            result, failure = None, None
            try:
                if host is None:
                    host = ThreadHost(*arguments)
                    host.open()
                else:
                    result = host.call(name, *arguments, **named)
            except Exception as error:  # noqa: BLE001 - raised in the process of the test
                failure = _sendable(error)
            calls.send(Answer(result, failure, host is not None and host.has_mistakes))
    except (EOFError, OSError, KeyboardInterrupt):
        pass
    finally:
        if host is not None:
            host.close()


def _with_function(value: Any, questions: "Connection[Any, Any]") -> Any:
    """A function that asks the process of the test. It runs on the event loop, which waits for the answer."""
    if not isinstance(value, FunctionOfTest):
        return value

    def ask(*arguments: Any) -> Any:
        questions.send((value.number, arguments))
        result, mistake = questions.recv()
        if mistake is not None:
            raise MistakeOfTest(mistake)
        return result

    return ask


def _sendable(error: Exception) -> Exception:
    """An error whose constructor needs other arguments than its message becomes a general one with that message."""
    try:
        is_same = str(pickle.loads(pickle.dumps(error))) == str(error)
    except Exception:  # noqa: BLE001 - whatever its constructor says
        is_same = False
    return error if is_same else ClusterError(str(error))
