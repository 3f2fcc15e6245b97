"""Connections that never end their TLS handshake, or never log in, beside a client that writes.

`python -m tests.siege.silent_logins` prints the waits of the client before and meanwhile, and the broker's memory.
"""

import argparse
import socket
import ssl
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from tests.certificates import Authority, Certificate
from tests.clients.broker import TidelogProcess, running
from tools.apache_kafka import free_port

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEFORE_S = 3.0
HALF_OF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


class Outcome(NamedTuple):
    opened: int
    before_ms: tuple[float, float]
    """p50 and p99 of the client's waits."""
    meanwhile_ms: tuple[float, float]
    before_mb: float
    peak_mb: float


def besiege(directory: Path, connections: int, seconds: float) -> Outcome:
    certificate, port = Authority(directory).sign("broker"), free_port()
    broker = TidelogProcess(directory, _settings(certificate, port), port)
    with running(broker):
        assert broker._process is not None
        pid = broker._process.pid
        writer = _Writer(broker.bootstrap, certificate)
        before = writer.waits_ms(BEFORE_S)
        before_mb = _resident_mb(pid)
        # Processes of their own: the waits of the client are those for the broker.
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            attacks = [
                pool.submit(attack, port, str(certificate.authority), connections // 2, seconds, is_half)
                for is_half in (True, False)
            ]
            meanwhile = writer.waits_ms(seconds)
            peak_mb = _resident_mb(pid)
            opened = sum(each.result() for each in attacks)
        writer.close()
    return Outcome(opened, before, meanwhile, before_mb, peak_mb)


def _settings(certificate: Certificate, port: int) -> dict[str, str]:
    jaas = f'{MODULE} required username="admin" password="hunter2" user_admin="hunter2";'
    return {
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "ssl.keystore.location": str(certificate.location),
        "ssl.truststore.location": str(certificate.authority),
    }


class _Writer:
    def __init__(self, bootstrap: str, certificate: Certificate) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "hunter2",
                "ssl.ca.location": str(certificate.authority),
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._write()

    def _write(self) -> float:
        began = time.perf_counter()
        self._producer.produce("beside", b"record")
        assert self._producer.flush(60) == 0
        return (time.perf_counter() - began) * 1000

    def close(self) -> None:
        del self._producer

    def waits_ms(self, seconds: float) -> tuple[float, float]:
        until, found = time.monotonic() + seconds, list[float]()
        while time.monotonic() < until:
            found.append(self._write())
            time.sleep(0.01)
        found.sort()
        return found[len(found) // 2], found[len(found) * 99 // 100]


def attack(port: int, authority: str, connections: int, seconds: float, is_half: bool) -> int:
    """Open connections and say nothing more; a few are exchanged for new ones. Returns how many were opened."""
    context = ssl.create_default_context(cafile=authority)
    until, held, opened = time.monotonic() + seconds, list[socket.socket](), 0
    while time.monotonic() < until:
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), 10.0)
            held.append(connection)
            if is_half:
                connection.sendall(HALF_OF_HELLO)
            else:
                held[-1] = context.wrap_socket(connection, server_hostname="localhost")
            opened += 1
        if len(held) >= connections:
            held.pop(0).close()
            time.sleep(0.1)
    for each in held:
        each.close()
    return opened


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.siege.silent_logins", description=__doc__)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-silent-") as temporary:
        found = besiege(Path(temporary), options.connections, options.seconds)
    print(
        f"{found.opened} connections; p50/p99 before {found.before_ms[0]:.1f}/{found.before_ms[1]:.1f} ms,"
        f" meanwhile {found.meanwhile_ms[0]:.1f}/{found.meanwhile_ms[1]:.1f} ms;"
        f" memory {found.before_mb:.0f} MB, then {found.peak_mb:.0f} MB"
    )


if __name__ == "__main__":
    main()
