"""Mutated TLS handshakes against a broker: nothing fails in it, nothing is left, and a good client is always served.

`python -m tests.siege.tls_fuzz --connections 100000` attacks a broker of its own.
"""

import argparse
import asyncio
import logging
import random
import resource
import ssl
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.certificates import Authority, Certificate
from tidelog.config.broker import BrokerSettings
from tidelog.server.broker import Broker

AT_ONCE = 50
"""Connections."""
TIMEOUT_S = 30.0
GIVE_UP_S = 0.2
"""A server that waits for the rest of a record says nothing: the attacker leaves."""
READ_BYTES = 65536
API_VERSIONS = b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\0\1x"


class Verdict(NamedTuple):
    connections: int
    tolerated: int
    """Answered in spite of a change that TLS permits: of the record version, of the empty message before the client's
    Finished, or behind the request."""
    left_open: int
    failures: list[str]
    """What the broker logged as an error of its own."""


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One to four changes: bits, bytes, lengths, pieces that are missing, repeated or inserted."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(changed) + 1)
        match chance.randrange(6):
            case 0:
                changed[position:position] = chance.randbytes(chance.randint(1, 64))
            case 1:
                del changed[position : position + chance.randint(1, 64)]
            case 2 if position < len(changed):
                changed[position] ^= 1 << chance.randrange(8)
            case 3:
                changed[position : position + 2] = chance.choice((b"\0\0", b"\xff\xff", b"\x3f\xff", b"\0\1"))
            case 4:
                changed = changed[:position]
            case _:
                changed += changed[: chance.randrange(512)]
    return bytes(changed)


class Handshake:
    """A client whose bytes pass through memory, so that one flight of them can be changed."""

    def __init__(self, context: ssl.SSLContext, changed_flight: int, chance: random.Random) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._changed_flight = changed_flight
        self._chance = chance
        self._flight = 0
        self.is_changed = False

    async def attempt(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the server answered the request after the handshake."""
        is_asked = False
        while True:
            try:
                if not is_asked:
                    self._tls.do_handshake()
                    self._tls.write(API_VERSIONS)
                    is_asked = True
                if self._tls.read(READ_BYTES):
                    return True
            except ssl.SSLWantReadError:
                pass
            self._send(writer)
            async with asyncio.timeout(GIVE_UP_S if self.is_changed else TIMEOUT_S):
                data = await reader.read(READ_BYTES)
            if not data:
                return False
            self._incoming.write(data)

    def _send(self, writer: asyncio.StreamWriter) -> None:
        data = self._outgoing.read()
        if not data:
            return
        self._flight += 1
        if self._flight == self._changed_flight:
            changed = mutated(data, self._chance)
            self.is_changed = changed != data
            data = changed
        writer.write(data)


async def attack(port: int, authority: Path, connections: int, seed: int = 1) -> int:
    """Returns how many were answered. A good client among each hundred must be."""
    chance, left, served = random.Random(seed), connections, 0
    contexts = [ssl.create_default_context(cafile=str(authority)) for _ in range(2)]
    contexts[1].maximum_version = ssl.TLSVersion.TLSv1_2

    async def client() -> None:
        nonlocal left, served
        while left > 0:
            left -= 1
            if left % 100 == 0:
                assert await _connect(port, Handshake(chance.choice(contexts), 0, chance)), "a good client is refused"
            handshake = Handshake(chance.choice(contexts), chance.choice((1, 1, 2, 3)), chance)
            is_served = await _connect(port, handshake)
            served += is_served and handshake.is_changed

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, connections)):
            group.create_task(client())
    return served


async def _connect(port: int, handshake: Handshake) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ssl.SSLError, OSError, TimeoutError):
            return await handshake.attempt(reader, writer)
        return False
    finally:
        writer.transport.abort()


async def besiege(directory: Path, certificate: Certificate, connections: int) -> Verdict:
    settings = BrokerSettings(
        log_dirs=(str(directory / "data"),),
        coordination_store=str(directory / "coordination.sqlite"),
        listeners=("SSL://127.0.0.1:0",),
        security_inter_broker_protocol="SSL",
        **certificate.ssl_settings,  # type: ignore[arg-type]
    )
    failures = Failures()
    logging.getLogger("tidelog").addHandler(failures)
    broker = await Broker.start(settings)
    try:
        port = int(broker.advertised_address.rpartition(":")[2])
        tolerated = await attack(port, certificate.authority, connections)
        left_open = await left_open_connections(broker)
        return Verdict(connections, tolerated, left_open, failures.lines)
    finally:
        await broker.stop()
        logging.getLogger("tidelog").removeHandler(failures)


class Failures(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def left_open_connections(broker: Broker) -> int:
    """Connections that are still there after a while."""
    own = 2  # to itself, as controller and as broker
    for _ in range(100):
        if len(broker.acceptor.registry) <= own:
            break
        await asyncio.sleep(0.1)
    return max(0, len(broker.acceptor.registry) - own)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.siege.tls_fuzz", description=__doc__)
    parser.add_argument("--connections", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidelog-tls-") as temporary:
        directory = Path(temporary)
        began = time.monotonic()
        verdict = asyncio.run(besiege(directory, Authority(directory).sign("broker"), options.connections))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{verdict.connections} handshakes, {verdict.tolerated} tolerated, {verdict.left_open} left open", end="")
    print(f", {time.monotonic() - began:.0f} s, peak memory with the attacker {peak_mb:.0f} MB")
    for line in verdict.failures:
        print(line)
    sys.exit(1 if verdict.failures or verdict.left_open else 0)


if __name__ == "__main__":
    main()
