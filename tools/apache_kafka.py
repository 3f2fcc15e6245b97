"""Gets Apache Kafka from Maven Central and runs it: the peer that Tidelog is compared with."""

import argparse
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".cache" / "apache-kafka"
LOG4J_CONFIGURATION = REPOSITORY / "tools" / "log4j.properties"

KAFKA_2 = "2.8.2"
"""The last one whose tools ask through ZooKeeper."""
KAFKA_3 = "3.9.2"
KAFKA_4 = "4.3.1"

# The logging back end is the distribution's business, so Kafka's own pom does not ask for one.
LOG_BACK_END = {
    "2": ("org.slf4j", "slf4j-log4j12", "1.7.30"),
    "3": ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    "4": ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
}
LEAVE_OUT_DEPENDENCIES = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
JVM_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
START_LIMIT_S = 90.0
STOP_LIMIT_S = 60.0
POLL_S = 0.02


class NotAvailable(Exception):
    """Something this machine would need is missing; the message says what to install."""


class KafkaFailed(Exception):
    """Apache Kafka did not start or stop as it should; the message ends with its last words."""


def require_java() -> None:
    """Makes sure that `java` and `mvn` can be run."""
    if not missing_programs():
        return
    if os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get"):
        _install_debian_packages("default-jdk-headless", "maven")
    if missing := missing_programs():
        raise NotAvailable(
            f"Apache Kafka needs {' and '.join(missing)}: install a Java 17 (or newer) runtime and Maven, "
            "for example with apt-get install default-jdk-headless maven"
        )


def missing_programs() -> list[str]:
    return [program for program in ("java", "mvn") if shutil.which(program) is None]


def _install_debian_packages(*packages: str) -> None:
    print("installing " + ", ".join(packages), file=sys.stderr)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *packages]):
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)


def libraries(version: str) -> Path:
    """The directory with the jars of that version of server and tools, fetched on first use."""
    require_java()
    directory = CACHE / version / "libs"
    if not directory.is_dir():
        _fetch_libraries(version, directory)
    return directory


def _fetch_libraries(version: str, directory: Path) -> None:
    wanted = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        LOG_BACK_END[version.split(".")[0]],
    ]
    fetch_artefacts(f"Apache Kafka {version}", wanted, directory)


def fetch_artefacts(
    name: str, wanted: Sequence[tuple[str, str, str]], directory: Path, *, with_dependencies: bool = True
) -> None:
    """The artefacts (group, name, version), with all that they need at run time unless they shall come alone."""
    print(f"fetching {name} with mvn", file=sys.stderr)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "pom.xml").write_text(_pom(wanted, "" if with_dependencies else LEAVE_OUT_DEPENDENCIES))
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={scratch / 'libs'}"]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotAvailable(f"mvn could not fetch {name}:\n{done.stdout}{done.stderr}")
        _move_unless_there(scratch / "libs", directory)


def _move_unless_there(source: Path, target: Path) -> None:
    """Another process may have fetched the same meanwhile: the first one wins."""
    try:
        source.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _pom(wanted: Sequence[tuple[str, str, str]], exclusions: str) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>"
        f"{exclusions}</dependency>"
        for group, artifact, number in wanted
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tidelog</groupId><artifactId>apache-kafka</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def java_command(version: str, main_class: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
    return ["java", *flags, "-cp", f"{libraries(version)}/*", main_class, *arguments]


def _logging_flags(level: str) -> list[str]:
    """For log4j 1, which Kafka 3 uses, and for log4j 2, which Kafka 4 uses."""
    return [
        f"-Dlog4j.configuration=file:{LOG4J_CONFIGURATION}",
        f"-Dkafka.log.level={level}",
        f"-Dlog4j2.level={level}",
    ]


def run_tool(version: str, main_class: str, *arguments: str) -> str:
    """Runs one of Kafka's command line tools and returns everything it printed."""
    command = java_command(
        version, main_class, *arguments, flags=["-Xmx256m", "-XX:TieredStopAtLevel=1", *_logging_flags("WARN")]
    )
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise KafkaFailed(f"{main_class} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def dump_log_segments(files: Iterable[Path | str], *flags: str, version: str = KAFKA_3) -> str:
    """What Kafka's DumpLogSegments says about segment, index or snapshot files."""
    # The class moved to another package with Kafka 4.
    main_class = "kafka.tools.DumpLogSegments" if version.startswith("3.") else "org.apache.kafka.tools.DumpLogSegments"
    return run_tool(version, main_class, "--files", ",".join(str(file) for file in files), *flags)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class JavaServer:
    """A Java process that listens on a port of the loopback interface."""

    name = "a Java server"
    jvm_flags: Sequence[str] = JVM_FLAGS

    def __init__(self, version: str, port: int, data_dir: Path | str, heap: str) -> None:
        self.version = version
        self.port = port or free_port()
        self.data_dir = Path(data_dir)
        self.heap = heap
        self.process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    @property
    def log_file(self) -> Path:
        return self.data_dir / "server.log"

    def class_path(self) -> str:
        return f"{libraries(self.version)}/*"

    def main(self) -> list[str]:
        """The main class and its arguments."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Writes what the server reads at its start."""
        raise NotImplementedError

    def is_answering(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Starts the process and returns when it answers."""
        assert self.process is None, f"{self.name} is running already"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.prepare()
        flags = [*self.jvm_flags, f"-Xms{self.heap}", f"-Xmx{self.heap}", *_logging_flags("INFO")]
        command = ["java", *flags, "-cp", self.class_path(), *self.main()]
        self._log = self.log_file.open("ab")
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=self.data_dir)
        self._wait_until_it_answers()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not self.is_answering():
            assert self.process is not None
            if self.process.poll() is not None:
                self._reap()
                raise KafkaFailed(f"{self.name} ended while starting:\n{self.last_words()}")
            if time.monotonic() > deadline:
                self.kill()
                raise KafkaFailed(f"{self.name} did not answer within {START_LIMIT_S:.0f} s:\n{self.last_words()}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Ends the process gracefully."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise KafkaFailed(f"{self.name} did not stop:\n{self.last_words()}") from None
        self._reap()

    def kill(self) -> None:
        """Ends the process as a crash would."""
        if self.process is not None:
            self.process.kill()
            self._reap()

    def _reap(self) -> None:
        assert self.process is not None
        self.process.wait()
        self.process = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def last_words(self, lines: int = 25) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.kill()


def new_cluster_id() -> str:
    # One that begins with a dash would look like an option.
    return "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]


class ApacheKafka(JavaServer):
    """One Apache Kafka broker: in KRaft combined mode, or with ZooKeeper where `zookeeper` names its address."""

    def __init__(
        self,
        version: str = KAFKA_4,
        port: int = 0,
        data_dir: Path | str = "",
        heap: str = "1g",
        settings: Mapping[str, str] | None = None,
        *,
        zookeeper: str | None = None,
        broker_id: int = 1,
        controller_port: int = 0,
        cluster_id: str = "",
    ) -> None:
        super().__init__(version, port, data_dir or tempfile.mkdtemp(prefix="apache-kafka-"), heap)
        self.name = f"Apache Kafka {version}"
        self.broker_id = broker_id
        self._zookeeper = zookeeper
        self._settings = dict(settings or {})
        self._controller_port = controller_port or free_port()
        self._cluster_id = cluster_id or new_cluster_id()

    @property
    def bootstrap(self) -> str:
        return self.address

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def _properties_file(self) -> Path:
        return self.data_dir / "server.properties"

    def main(self) -> list[str]:
        return ["kafka.Kafka", str(self._properties_file)]

    def prepare(self) -> None:
        write_properties(self._properties_file, self._common_settings() | self._mode_settings() | self._settings)
        if self._zookeeper is None and not (self.log_dir / "meta.properties").exists():
            arguments = ("format", "-t", self._cluster_id, "-c", str(self._properties_file))
            run_tool(self.version, "kafka.tools.StorageTool", *arguments)

    def _common_settings(self) -> dict[str, str]:
        return {
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }

    def _mode_settings(self) -> dict[str, str]:
        if self._zookeeper is not None:
            return {
                "broker.id": str(self.broker_id),
                "listeners": f"PLAINTEXT://{self.address}",
                "zookeeper.connect": self._zookeeper,
            }
        controller = f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{self.broker_id}@{controller}",
        }

    def is_answering(self) -> bool:
        """Whether it answers an ApiVersions request: it takes connections only when it is ready to serve."""
        request = struct.pack(">hhih", 18, 0, 1, -1)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                return len(connection.recv(4)) == 4
        except OSError:
            return False


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Apache Kafka on the loopback interface until interrupted.")
    parser.add_argument("--version", default=KAFKA_4)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--heap", default="1g")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    arguments = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in arguments.settings)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        tempfile.TemporaryDirectory(prefix="apache-kafka-") as data_dir,
        ApacheKafka(arguments.version, arguments.port, data_dir, arguments.heap, settings) as kafka,
    ):
        print(f"Apache Kafka {kafka.version} is listening on {kafka.bootstrap}", flush=True)
        signal.pause()


if __name__ == "__main__":
    main()
