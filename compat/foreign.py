"""The clients that are not Python: how each is fetched and built, and what it does not offer."""

import hashlib
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compat.remote import RemoteDriver
from tests.clients.driver import Capability, ClientDriver
from tools.apache_kafka import KAFKA_3, KAFKA_4

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache" / "compat"
JACKSON_VERSION = "2.19.2"
SLF4J_VERSION = "1.7.36"


class ClientUnavailable(Exception):
    """A client cannot be had on this machine; the message says what is missing."""


@dataclass(frozen=True)
class ForeignClient(ABC):
    name: str
    lacks: frozenset[Capability] = frozenset()
    limits: Mapping[str, str] = field(default_factory=dict)
    """Features that the client itself cannot do with any broker, with the reason."""
    only: tuple[str, ...] = ()
    """How the names of those features begin that its program can be asked for, if these are not all."""

    def connect(self, bootstrap: str) -> ClientDriver:
        return RemoteDriver(bootstrap, self.command())

    @property
    def directory(self) -> Path:
        return CACHE / self.name.replace(" ", "-").replace("/", "-")

    def command(self) -> list[str]:
        """The program's command line; fetched and built where it is not there yet."""
        stamp = self.directory / "built"
        if not stamp.exists() or stamp.read_text() != self.fingerprint():
            require(*self.needs())
            print(f"building {self.name}", flush=True)
            self.directory.mkdir(parents=True, exist_ok=True)
            self.build()
            stamp.write_text(self.fingerprint())
        return self.program()

    def fingerprint(self) -> str:
        """Changes with the sources."""
        digest = hashlib.sha256()
        for source in self.sources():
            digest.update(source.read_bytes())
        return digest.hexdigest()

    @abstractmethod
    def release(self) -> str:
        """The client's version."""

    @abstractmethod
    def needs(self) -> Sequence[str]: ...

    @abstractmethod
    def sources(self) -> Sequence[Path]: ...

    @abstractmethod
    def build(self) -> None: ...

    @abstractmethod
    def program(self) -> list[str]: ...


def require(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        raise ClientUnavailable(f"{' and '.join(missing)} not found: install it to try this client")


def found_in(file: Path, pattern: str) -> str:
    match = re.search(pattern, file.read_text())
    assert match is not None, f"{file} does not say {pattern}"
    return match[1]


def run(command: Sequence[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClientUnavailable(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")


@dataclass(frozen=True)
class JavaClient(ForeignClient):
    version: str = ""

    def release(self) -> str:
        return self.version

    def needs(self) -> Sequence[str]:
        return ("java", "javac", "mvn")

    def sources(self) -> Sequence[Path]:
        return [HERE / "java" / name for name in ("Driver.java", "Members.java", "Security.java", "Transactions.java")]

    def build(self) -> None:
        (self.directory / "pom.xml").write_text(self._pom())
        command = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        run([*command, f"-DoutputDirectory={self.directory / 'libs'}"], self.directory)
        classes = str(self.directory / "classes")
        run(["javac", "-cp", f"{self.directory}/libs/*", "-d", classes, *map(str, self.sources())], self.directory)

    def program(self) -> list[str]:
        classpath = f"{self.directory}/classes:{self.directory}/libs/*"
        return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath, "Driver"]

    def _pom(self) -> str:
        wanted = [
            ("org.apache.kafka", "kafka-clients", self.version),
            ("com.fasterxml.jackson.core", "jackson-databind", JACKSON_VERSION),
            ("org.slf4j", "slf4j-nop", SLF4J_VERSION),
        ]
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version></dependency>"
            for group, artifact, version in wanted
        )
        return (
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>tidelog</groupId><artifactId>compat</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
        )


@dataclass(frozen=True)
class GoClient(ForeignClient):
    def release(self) -> str:
        return found_in(HERE / "go" / "go.mod", r"franz-go v(\S+)")

    def needs(self) -> Sequence[str]:
        return ("go",)

    def sources(self) -> Sequence[Path]:
        return [
            HERE / "go" / name
            for name in ("main.go", "members.go", "security.go", "transactions.go", "go.mod", "go.sum")
        ]

    def build(self) -> None:
        run(["go", "build", "-o", str(self.directory / "driver"), "."], HERE / "go")

    def program(self) -> list[str]:
        return [str(self.directory / "driver")]


@dataclass(frozen=True)
class NodeClient(ForeignClient):
    folder: str = ""
    files: Sequence[str] = ()

    def release(self) -> str:
        return found_in(HERE / self.folder / "package.json", rf'"{self.name}": "(\S+)"')

    def needs(self) -> Sequence[str]:
        return ("node", "npm")

    def sources(self) -> Sequence[Path]:
        return [HERE / self.folder / name for name in ("driver.js", "package.json", *self.files)]

    def build(self) -> None:
        for source in self.sources():
            shutil.copy(source, self.directory)
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        run(["npm", "install", *flags], self.directory)

    def program(self) -> list[str]:
        return ["node", str(self.directory / "driver.js")]


ONE_COORDINATOR = "it looks up its coordinator once, and does not notice when another broker takes over, with Kafka too"
JAVA_LACKS = frozenset({Capability.DESCRIBE_TOPIC_PARTITIONS})

FOREIGN_CLIENTS: Sequence[ForeignClient] = (
    JavaClient("Java 3.9", JAVA_LACKS | {Capability.REPLACE_CONFIGS}, version=KAFKA_3),
    JavaClient("Java 4.3", JAVA_LACKS | {Capability.REPLACE_CONFIGS}, version=KAFKA_4),
    GoClient(
        "franz-go",
        frozenset(),
        {"consumer-group-static": "it leaves without its instance id, which Kafka refuses too"},
    ),
    NodeClient(
        "kafkajs",
        frozenset(
            {
                Capability.JOIN_COOPERATIVELY,
                Capability.CONSUMER_PROTOCOL,
                Capability.STATIC_MEMBERSHIP,
                Capability.INCREMENTAL_CONFIGS,
                Capability.DESCRIBE_LOG_DIRS,
                Capability.DESCRIBE_PRODUCERS,
                Capability.DESCRIBE_TOPIC_PARTITIONS,
                Capability.MAX_TIMESTAMP,
                Capability.NULL_HEADER_VALUES,
            }
        ),
        {"record-headers": "it keeps headers as a map, so that their order is lost"},
        folder="js",
        files=("members.js", "security.js", "transactions.js"),
    ),
    NodeClient(
        "@platformatic/kafka",
        frozenset({Capability.JOIN_COOPERATIVELY}),
        {
            "group-static": "it leaves the group when it is closed, though it is a static member",
            "group-through-coordinator-kill": ONE_COORDINATOR,
            "consumer-group-describe": "it describes classic groups only",
            "consumer-group-through-coordinator-kill": ONE_COORDINATOR,
            "consume-in-rack": "it sends no rack, and ignores the replica that a leader names",
            "transaction-abort": "it returns aborted records too",
            "transaction-fencing": "it begins as producer 0 of epoch 0, which Kafka refuses too if another is active",
            "transaction-offsets": "it commits only offsets of messages that a consumer of its own has read",
            "transaction-through-coordinator-kill": ONE_COORDINATOR,
        },
        only=("group-", "consumer-group-", "consume-in-rack", "transaction-"),
        folder="platformatic",
    ),
)
