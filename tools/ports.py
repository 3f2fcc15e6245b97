"""Ports of this machine that nobody listens on."""

import os
import socket

FIRST_PORT = 20_000
LAST_PORT = 32_000
"""Below the range from which the system takes ports for outgoing connections."""
STRIDE = 7417
"""Processes that were started together begin hundreds of ports apart: metrics are served 100 above a broker."""


class NoFreePorts(Exception):
    """The message says how many were looked for, and where."""


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row; each process begins to look elsewhere."""
    step = (os.getpid() * STRIDE) % (LAST_PORT - FIRST_PORT)
    for offset in range(0, LAST_PORT - FIRST_PORT, count):
        first = FIRST_PORT + (step + offset) % (LAST_PORT - FIRST_PORT)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise NoFreePorts(f"there are no {count} free ports in a row from {FIRST_PORT} to {LAST_PORT}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
