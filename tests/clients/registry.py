"""The clients that the suite drives, and what each of them does not offer."""

import importlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from tests.clients.driver import Capability, ClientDriver


class ClientMissing(Exception):
    """The client is not on this machine and cannot be installed."""


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    module: str
    driver: str
    lacks: frozenset[Capability] = frozenset()
    program: str | None = None  # a Debian package and the command in it

    def connect(self, bootstrap: str) -> ClientDriver:
        if self.program is not None:
            require_program(self.program)
        try:
            module = importlib.import_module(self.module)
        except ImportError as error:
            raise ClientMissing(f"{self.name} is not installed: {error}") from error
        driver: type[ClientDriver] = getattr(module, self.driver)
        return driver(bootstrap)


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            "confluent-kafka",
            "tests.clients.confluent_driver",
            "ConfluentDriver",
            lacks=frozenset(
                {
                    Capability.DESCRIBE_LOG_DIRS,
                    Capability.DESCRIBE_PRODUCERS,
                    Capability.DESCRIBE_TOPIC_PARTITIONS,
                }
            ),
        ),
        Client(
            "kafka-python",
            "tests.clients.kafka_python_driver",
            "KafkaPythonDriver",
            lacks=frozenset(
                {
                    # Its replacing call first fills in all settings that were not named.
                    Capability.REPLACE_CONFIGS,
                    Capability.CONSUMER_PROTOCOL,
                    Capability.NULL_HEADER_VALUES,
                    Capability.NULL_KEY_AND_VALUE,
                    # 3.0 forgets what it was about to ask a coordinator that it cannot connect to, and waits for ever.
                    Capability.REPLACE_TRANSACTION_COORDINATOR,
                }
            ),
        ),
        Client(
            "aiokafka",
            "tests.clients.aiokafka_driver",
            "AiokafkaDriver",
            lacks=frozenset(
                {
                    Capability.INCREMENTAL_CONFIGS,
                    Capability.DESCRIBE_LOG_DIRS,
                    Capability.DESCRIBE_PRODUCERS,
                    Capability.DESCRIBE_TOPIC_PARTITIONS,
                    Capability.MAX_TIMESTAMP,
                    Capability.NULL_KEY_AND_VALUE,
                    Capability.JOIN_COOPERATIVELY,
                    Capability.CONSUMER_PROTOCOL,
                    Capability.DELETE_GROUPS,
                }
            ),
        ),
        Client(
            "kcat",
            "tests.clients.kcat_driver",
            "KcatDriver",
            program="kcat",
            lacks=frozenset(Capability) - {Capability.READ_IN_GROUPS, Capability.READ_IN_RACK},
        ),
    )
}


def require_program(name: str) -> None:
    if shutil.which(name) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", name]):
            subprocess.run(command, env=environment, capture_output=True, check=False)
    if shutil.which(name) is None:
        raise ClientMissing(f"{name} is not installed: apt-get install {name}")
