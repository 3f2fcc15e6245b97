"""`tidelog COMMAND` in this process, against brokers in memory: as the user sees it, without the start of a process."""

import json
import os
import sys
import tempfile
from typing import Any, NamedTuple

import pytest

from tidelog.cli.main import main
from tidelog.testing import Cluster


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class CommandLine:
    def __init__(self, cluster: Cluster, captured: pytest.CaptureFixture[str]) -> None:
        self._cluster = cluster
        self._captured = captured

    def run(self, *arguments: str, given: str = "") -> Ended:
        self._captured.readouterr()
        place = [] if "--bootstrap" in arguments else ["--bootstrap", self._cluster.bootstrap_servers]
        before = sys.stdin
        with tempfile.TemporaryFile("w+") as stdin:
            stdin.write(given)
            stdin.flush()
            os.lseek(stdin.fileno(), 0, os.SEEK_SET)
            sys.stdin = stdin
            try:
                code = main([*arguments, *place])
            except SystemExit as left:
                code = int(left.code or 0)
            finally:
                sys.stdin = before
        return Ended(code, *self._captured.readouterr())

    def good(self, *arguments: str, given: str = "") -> str:
        ended = self.run(*arguments, given=given)
        assert ended.code == 0, ended
        return ended.out

    def found(self, *arguments: str) -> Any:
        return json.loads(self.good(*arguments, "--json"))

    def rejection(self, *arguments: str, given: str = "") -> str:
        """The sentence of a command that must fail."""
        ended = self.run(*arguments, given=given)
        assert ended.code == 1, ended
        assert "Traceback" not in ended.err
        return ended.err.splitlines()[-1].partition(": ")[2]
