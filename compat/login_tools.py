"""Kafka's tools of both versions over SASL_SSL: users of SCRAM, and Java clients whose sessions expire."""

import tempfile
from pathlib import Path

from compat.command_line import VERSIONS, ToolBox
from tests.certificates import Authority, Certificate
from tests.clients.broker import TidelogProcess, running
from tools.apache_kafka import KAFKA_3, free_port

MODULES = "org.apache.kafka.common.security"
ADMIN = f'{MODULES}.plain.PlainLoginModule required username="admin" password="hunter2" user_admin="hunter2";'
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="alice" password="{{}}";'
SESSION_MS = 1500
RECORDS, RECORDS_PER_SECOND = 2000, 400
"""Five seconds: several sessions."""


def check() -> list[str]:
    """What went wrong."""
    faults = []
    for version in VERSIONS:
        with tempfile.TemporaryDirectory(prefix="compat-logins-") as scratch:
            directory = Path(scratch)
            certificate, port = Authority(directory).sign("broker"), free_port()
            with running(TidelogProcess(directory, _settings(certificate, port), port)) as broker:
                box = ToolBox(version, broker.bootstrap)
                try:
                    log_in(box, directory, certificate)
                except AssertionError as fault:
                    faults.append(f"logins with the tools of {version}: {fault}")
                finally:
                    box.close()
    return faults


def _settings(certificate: Certificate, port: int) -> dict[str, str]:
    return {
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": ADMIN,
        "connections.max.reauth.ms": str(SESSION_MS),
        "ssl.keystore.location": str(certificate.location),
        "ssl.truststore.location": str(certificate.authority),
    }


def _client_file(directory: Path, certificate: Certificate, name: str, mechanism: str, jaas: str) -> str:
    file = directory / f"{name}.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificate.authority}\n"
    )
    return str(file)


def log_in(box: ToolBox, directory: Path, certificate: Certificate) -> None:
    admin = ("--command-config", _client_file(directory, certificate, "admin", "PLAIN", ADMIN))
    user = ("--entity-type", "users", "--entity-name", "alice")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        box.configs(*admin, *user, "--alter", "--add-config", f"{mechanism}=[iterations=8192,password=sesame]")
    described = box.configs(*admin, *user, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described, described
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        alice = _client_file(directory, certificate, mechanism, mechanism, SCRAM.format("sesame"))
        topic = f"t-{mechanism}"
        box.topics("--command-config", alice, "--create", "--topic", topic)
        produce_and_consume(box, topic, alice)
    wrong = _client_file(directory, certificate, "wrong", "SCRAM-SHA-256", SCRAM.format("guess"))
    reason = refusal(box, "--command-config", wrong, "--list")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in reason, reason
    box.configs(*admin, *user, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in box.configs(*admin, *user, "--describe")


def refusal(box: ToolBox, *arguments: str) -> str:
    """Why kafka-topics failed; empty if it did not."""
    try:
        box.topics(*arguments)
    except AssertionError as refused:
        return str(refused)
    return ""


def produce_and_consume(box: ToolBox, topic: str, config: str) -> None:
    """Longer than a session: clients log in again on their connections (KIP-368)."""
    rate = ("--record-size", "100", "--throughput", str(RECORDS_PER_SECOND), "--num-records", str(RECORDS))
    is_old = box.version == KAFKA_3
    where = (
        ("--producer.config", config, "--producer-props", f"bootstrap.servers={box.bootstrap}")
        if is_old
        else ("--command-config", config, "--bootstrap-server", box.bootstrap)
    )
    written = box.run("ProducerPerformance", "--topic", topic, *rate, *where, at_bootstrap=False)
    assert f"{RECORDS} records sent" in written, written
    option = "--consumer.config" if is_old else "--command-config"
    messages = "--messages" if is_old else "--num-records"
    limit = ("--timeout", "60000")  # by default 10 s, in which a busy machine has not always logged in
    read = box.run("ConsumerPerformance", "--topic", topic, messages, str(RECORDS), option, config, *limit)
    assert f" {RECORDS}," in read, read
