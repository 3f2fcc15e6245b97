"""`tidelog console` as a process of its own, next to a cluster of this process."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

TIME_LIMIT_S = 120


class RunningConsole:
    def __init__(self, url: str, pid: int = 0) -> None:
        self.url = url
        """As it was printed, with the token if there is one."""
        self.pid = pid
        """Of its process, if this one has started it."""

    @property
    def origin(self) -> str:
        return self.url.split("?")[0].rstrip("/")

    def get(self, path: str, **headers: str) -> Any:
        return json.loads(self.read(path, **headers))

    def read(self, path: str, **headers: str) -> bytes:
        request = urllib.request.Request(self.origin + path, headers=headers)
        with urllib.request.urlopen(request, timeout=TIME_LIMIT_S) as response:
            data: bytes = response.read()
            return data

    def headers(self, path: str) -> Mapping[str, str]:
        with urllib.request.urlopen(self.origin + path, timeout=TIME_LIMIT_S) as response:
            found: Mapping[str, str] = response.headers
            return found

    def change(self, name: str, wanted: Mapping[str, object], **headers: str) -> tuple[int, Any]:
        sent = {"Content-Type": "application/json", "X-Tidelog-Console": "1"} | headers
        body = json.dumps(wanted).encode()
        request = urllib.request.Request(f"{self.origin}/api/changes/{name}", body, sent, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=TIME_LIMIT_S) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def refused(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and reason of a request that must not be answered."""
        try:
            answer = self.read(path, **headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        raise AssertionError(f"answered: {answer!r}")

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc


@contextmanager
def running_console(bootstrap: str, *options: str, **environment: str) -> Generator[RunningConsole]:
    command = [sys.executable, "-m", "tidelog", "console", "--bootstrap", bootstrap, "--port", "0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert ": http" in line, line + process.stderr.read()
            yield RunningConsole(line.split(": ", 1)[1].split()[0], process.pid)
        finally:
            process.terminate()
            process.wait(TIME_LIMIT_S)
