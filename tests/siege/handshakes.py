"""Attacks on a TLS listener: handshakes that are begun and never completed, or completed in vain."""

import ssl
import threading
from contextlib import suppress

from tests.siege.attacks import Attacker, attack
from tests.siege.wire import connect

HALF_OPEN = 3000
STORMING = 4


def client_hello() -> bytes:
    """First message of a handshake."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _unverified().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _at_tls_listener(attacker: Attacker) -> Attacker:
    return Attacker(attacker.target._replace(address=attacker.target.tls))


@attack("half-hellos", "3,000 connections to a TLS listener with half a ClientHello each, opened again when closed")
def _half_hellos(attacker: Attacker) -> None:
    _hold_handshakes(attacker, client_hello()[:100])


@attack("open-handshakes", "3,000 TLS handshakes that the broker has answered, and nobody completes", is_short=True)
def _open_handshakes(attacker: Attacker) -> None:
    _hold_handshakes(attacker, client_hello())


def _hold_handshakes(attacker: Attacker, beginning: bytes) -> None:
    attacker = _at_tls_listener(attacker)
    sockets = attacker.connections(HALF_OPEN)
    for each in sockets:
        with suppress(OSError):
            each.sendall(beginning)
    attacker.hold()


@attack("handshake-storm", "TLS handshakes that are completed and closed without a request, as many as fit")
def _handshake_storm(attacker: Attacker) -> None:
    attacker = _at_tls_listener(attacker)
    context = _unverified()

    def storm() -> None:
        while not attacker.is_over:
            with (
                suppress(OSError),
                connect(attacker.target.address, 5.0) as plain,
                context.wrap_socket(plain, server_hostname="localhost"),
            ):
                pass

    threads = [threading.Thread(target=storm) for _ in range(STORMING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
