"""Runs a ZooKeeper server: Debian's package where it is installed, otherwise Maven's artefact."""

import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from tools.apache_kafka import REPOSITORY, JavaServer, NotAvailable, fetch_artefacts, require_java, write_properties

DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
VERSION = "3.8.4"
CACHE = REPOSITORY / ".cache" / "zookeeper"
ARTEFACTS = [
    ("org.apache.zookeeper", "zookeeper", VERSION),
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),  # optional in the pom, needed by the server
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
]
TICK_MS = 100
"""Sessions expire at a tick: a short one lets short sessions end when they should."""


def class_path() -> str:
    """Fetched on first use. NotAvailable says what to install."""
    if DEBIAN_JAR.exists() and shutil.which("java"):
        return str(DEBIAN_JAR)
    try:
        require_java()
    except NotAvailable:
        raise NotAvailable(
            "ZooKeeper needs Java and Debian's package or Maven: apt-get install default-jre-headless libzookeeper-java"
        ) from None
    directory = CACHE / VERSION / "libs"
    if not directory.is_dir():
        fetch_artefacts(f"ZooKeeper {VERSION}", ARTEFACTS, directory)
    return f"{directory}/*"


class ZooKeeper(JavaServer):
    """One server on the loopback interface. What it wrote is not forced to disk, for speed."""

    name = "ZooKeeper"
    jvm_flags: Sequence[str] = (
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.awt.headless=true",
        "-Dzookeeper.forceSync=no",
        "-Dzookeeper.preAllocSize=1024",
    )

    def __init__(self, port: int, data_dir: Path | str, heap: str = "128m") -> None:
        super().__init__(VERSION, port, data_dir, heap)

    @property
    def connect_string(self) -> str:
        return self.address

    def class_path(self) -> str:
        return class_path()

    def prepare(self) -> None:
        lines = {
            "dataDir": str(self.data_dir / "zookeeper"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": "0",
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(2 * TICK_MS),
            "maxSessionTimeout": "60000",
            "4lw.commands.whitelist": "ruok",
        }
        write_properties(self.data_dir / "zookeeper.properties", lines)

    def main(self) -> list[str]:
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [main_class, str(self.data_dir / "zookeeper.properties")]

    def is_answering(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
