"""Connections that never end their TLS handshake, or never log in, beside a client that writes and others that come.

`python -m tests.siege.silent_logins` prints how many connections the broker held at once, the waits of the client
before and meanwhile, those of clients that connect and log in meanwhile, and the broker's memory.
"""

import argparse
import os
import socket
import ssl
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
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
OPENING_THREADS = 8
"""Per attacking process: one at a time would wait for the broker, and open fewer the busier the machine is."""
WRITES_PER_LOGIN = 50
HALF_OF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


class Outcome(NamedTuple):
    opened: int
    held: int
    """The most connections that the broker had at the same time."""
    before: "Waits"
    meanwhile: "Waits"
    before_mb: float
    peak_mb: float


class Waits(NamedTuple):
    writes_ms: tuple[float, float]
    """p50 and p99."""
    logins_ms: tuple[float, float]
    """Of a new client, until its first record is acknowledged: p50 and longest."""

    def __str__(self) -> str:
        return (
            f"writes {self.writes_ms[0]:.1f}/{self.writes_ms[1]:.1f} ms (p50/p99),"
            f" logins {self.logins_ms[0]:.0f}/{self.logins_ms[1]:.0f} ms (p50/longest)"
        )


def besiege(directory: Path, connections: int, seconds: float) -> Outcome:
    certificate, port = Authority(directory).sign("broker"), free_port()
    broker = TidelogProcess(directory, _settings(certificate, port), port)
    with running(broker):
        assert broker._process is not None
        pid = broker._process.pid
        writer = _Writer(broker.bootstrap, certificate)
        before, before_mb, peak = writer.waits(BEFORE_S), _resident_mb(pid), _Peak(pid)
        # Processes of their own: the waits of the client are those for the broker.
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            attacks = [
                pool.submit(attack, port, str(certificate.authority), connections // 2, seconds, is_half)
                for is_half in (True, False)
            ]
            meanwhile = writer.waits(seconds, peak.look)
            opened = sum(each.result() for each in attacks)
        writer.close()
    return Outcome(opened, peak.connections, before, meanwhile, before_mb, peak.resident_mb)


class _Peak:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.connections, self.resident_mb = 0, 0.0

    def look(self) -> None:
        self.resident_mb = max(self.resident_mb, _resident_mb(self._pid))
        self.connections = max(self.connections, _sockets(self._pid))


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
        self._settings = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "admin",
            "sasl.password": "hunter2",
            "ssl.ca.location": str(certificate.authority),
            "linger.ms": 0,
            "log_level": 0,
        }
        self._producer = Producer(self._settings)
        _write(self._producer)

    def close(self) -> None:
        del self._producer

    def waits(self, seconds: float, look: Callable[[], None] = lambda: None) -> Waits:
        until, writes, logins = time.monotonic() + seconds, list[float](), list[float]()
        while time.monotonic() < until:
            if len(writes) % WRITES_PER_LOGIN == 0:
                look()
                logins.append(_write(Producer(self._settings)))
            writes.append(_write(self._producer))
            time.sleep(0.01)
        writes.sort()
        logins.sort()
        return Waits(
            (writes[len(writes) // 2], writes[len(writes) * 99 // 100]), (logins[len(logins) // 2], logins[-1])
        )


def _write(producer: Producer) -> float:
    """Milliseconds until a record is acknowledged; for a new producer with its connections and logins."""
    began = time.perf_counter()
    producer.produce("beside", b"record")
    assert producer.flush(120) == 0
    return (time.perf_counter() - began) * 1000


def attack(port: int, authority: str, connections: int, seconds: float, is_half: bool) -> int:
    """Open connections and say nothing more; a few are exchanged for new ones. Returns how many were opened."""
    context = ssl.create_default_context(cafile=authority)
    until, held, opened = time.monotonic() + seconds, deque[socket.socket](), list[int]()

    def keep_opening() -> None:
        while time.monotonic() < until:
            with suppress(OSError):
                held.append(_silent(port, None if is_half else context))
                opened.append(1)
            while len(held) > connections:
                held.popleft().close()
                time.sleep(0.1)

    threads = [threading.Thread(target=keep_opening) for _ in range(OPENING_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in held:
        each.close()
    return len(opened)


def _silent(port: int, context: ssl.SSLContext | None) -> socket.socket:
    """A connection with half a ClientHello, or, with a context, one that could log in now."""
    connection = socket.create_connection(("127.0.0.1", port), 10.0)
    try:
        if context is not None:
            return context.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(HALF_OF_HELLO)
        return connection
    except BaseException:
        connection.close()
        raise


def _sockets(pid: int) -> int:
    found = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found += os.readlink(descriptor).startswith("socket:")
    return found


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
    print(f"{found.opened} connections opened, {found.held} held at once; memory {found.before_mb:.0f} MB,", end="")
    print(f" then {found.peak_mb:.0f} MB\nbefore: {found.before}\nmeanwhile: {found.meanwhile}")


if __name__ == "__main__":
    main()
