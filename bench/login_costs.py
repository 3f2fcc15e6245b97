"""Costs of a connection for a broker: `python -m bench.login_costs [CONNECTIONS]`.

CPU time of the broker for one connection that asks for the API versions and ends: without protection, with a login by
SCRAM-SHA-512, with TLS 1.3, and with both. Keys are derived by clients, and by brokers when a password is set, never at
a login; `derivation` is what that would cost on this machine.
"""

import socket
import ssl
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import wire
from bench.processes import CpuMeter
from tests.clients.broker import TidelogProcess
from tidelog.cli.local_cluster.certificates import AUTHORITY_FILE, broker_file, make_certificates
from tidelog.sasl.scram import SHA_512, ScramClient
from tools.apache_kafka import free_port

SASL_HANDSHAKE, SASL_AUTHENTICATE, ALTER_USERS = 17, 36, 51
USER, PASSWORD, SALT, ITERATIONS = "alice", "correct horse", b"pepper", 4096
SALTED = SHA_512.derive(PASSWORD, SALT, ITERATIONS)
PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
CONNECTIONS = 1000
WARM_UP = 100


class Line:
    """One connection."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="127.0.0.1")

    def ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])[wire.CORRELATION_BYTES :]

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            if not part:
                raise ConnectionError("the broker closed the connection")
            found += part
        return found

    def close(self) -> None:
        self._socket.close()


def add_user(port: int) -> None:
    change = wire.compact_string(USER) + struct.pack(">bi", SHA_512.type, ITERATIONS)
    change += wire.compact_bytes(SALT) + wire.compact_bytes(SALTED) + b"\x00"
    body = wire.compact_array([]) + wire.compact_array([change]) + b"\x00"
    line = Line(port)
    line.ask(wire.flexible_frame(ALTER_USERS, 0, body))
    line.close()


def log_in(line: Line, number: int) -> None:
    client = ScramClient(SHA_512, USER, f"nonce{number}")
    line.ask(wire.frame(SASL_HANDSHAKE, 1, wire.string(SHA_512.name)))
    client.on_server_first(_send_token(line, client.first_message))
    client.on_server_final(_send_token(line, client.final_message(SALTED)))


def _send_token(line: Line, token: bytes) -> bytes:
    answer = line.ask(wire.frame(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token))
    (code, text_length) = struct.unpack(">hh", answer[:4])
    if code:
        raise wire.RequestRejected(f"the login failed with error {code}")
    rest = answer[4 + max(text_length, 0) :]
    return rest[4 : 4 + struct.unpack(">i", rest[:4])[0]]


@contextmanager
def running_broker(directory: Path) -> Iterator[tuple[TidelogProcess, dict[str, int], ssl.SSLContext]]:
    certificates = directory / "certificates"
    make_certificates(certificates, range(1, 2))
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    settings = {
        "broker.id": "1",
        "listeners": ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
        "sasl.enabled.mechanisms": SHA_512.name,
        "ssl.keystore.location": str(certificates / broker_file(1)),
        "ssl.truststore.location": str(certificates / AUTHORITY_FILE),
        "ssl.enabled.protocols": "TLSv1.3",
    }
    broker = TidelogProcess(directory, settings, ports["PLAINTEXT"])
    broker.start()
    try:
        yield broker, ports, ssl.create_default_context(cafile=str(certificates / AUTHORITY_FILE))
    finally:
        broker.kill()


def connect(port: int, protocol: str, tls: ssl.SSLContext, number: int) -> None:
    line = Line(port, tls if protocol.endswith("SSL") else None)
    line.ask(wire.frame(wire.API_VERSIONS, 0, b""))
    if protocol.startswith("SASL"):
        log_in(line, number)
    line.close()


def measure(connections: int = CONNECTIONS, warm_up: int = WARM_UP) -> dict[str, float]:
    """Milliseconds of CPU by protocol, for one connection."""
    with tempfile.TemporaryDirectory(prefix="login-costs-") as directory, running_broker(Path(directory)) as running:
        broker, ports, tls = running
        add_user(ports["PLAINTEXT"])
        return {
            protocol: _cost_ms(broker, partial(connect, ports[protocol], protocol, tls), connections, warm_up)
            for protocol in PROTOCOLS
        }


def _cost_ms(broker: TidelogProcess, once: Callable[[int], None], connections: int, warm_up: int) -> float:
    for number in range(warm_up):
        once(number)
    with CpuMeter([broker.pid]) as cpu:
        for number in range(connections):
            once(number)
    return cpu.seconds * 1000 / connections


def main() -> None:
    connections = int(sys.argv[1]) if len(sys.argv) > 1 else CONNECTIONS
    found = measure(connections)
    began = time.process_time()
    SHA_512.derive(PASSWORD, SALT, ITERATIONS)
    print(f"derivation with {ITERATIONS} iterations: {(time.process_time() - began) * 1000:.2f} ms")
    for protocol, cost_ms in found.items():
        print(f"{protocol}: {cost_ms:.2f} ms of broker CPU per connection ({connections} connections)")
    for plain, secured in (("PLAINTEXT", "SASL_PLAINTEXT"), ("SSL", "SASL_SSL")):
        print(f"the login itself, on {secured}: {found[secured] - found[plain]:.2f} ms")


if __name__ == "__main__":
    main()
