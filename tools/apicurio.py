"""Gets Apicurio Registry from Maven Central and runs it: a schema registry with Confluent's REST interface."""

import os
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.apache_kafka import REPOSITORY, require_java

VERSION = "3.3.3"
ARTEFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
CACHE = REPOSITORY / ".cache" / "apicurio"
START_LIMIT_S = 180.0
POLL_S = 0.5


def directory() -> Path:
    """TIDELOG_APICURIO names a copy that is elsewhere."""
    return Path(os.environ.get("TIDELOG_APICURIO") or CACHE / VERSION)


def is_there() -> bool:
    return (directory() / "quarkus-run.jar").is_file()


def fetch() -> None:
    if is_there():
        return
    require_java()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={ARTEFACT}"]
        subprocess.run([*command, f"-DoutputDirectory={scratch}"], cwd=scratch, check=True)
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as content:
            content.extractall(Path(scratch, "registry"), filter="data")
        Path(scratch, "registry").rename(directory())


@contextmanager
def running(java: str, log: Path) -> Iterator[str]:
    """The URL of a registry that keeps its schemas in memory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", "quarkus-run.jar"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory(), env=os.environ | settings, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            _wait_until_it_answers(url, process, log)
            yield url
        finally:
            process.kill()
            process.wait()


def _wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(POLL_S)
    raise RuntimeError(f"the registry did not start: {log.read_text(errors='replace')[-2000:]}")


if __name__ == "__main__":
    fetch()
    print(directory())
