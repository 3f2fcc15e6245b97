"""Asks the fork server for a process, and stands for it: `python -I -S fork_client.py PYTHON SOCKET ARGUMENTS`.

Spark starts this program instead of Python. It passes on its files, directory, environment and signals, and ends when
the process ends. It imports only what Python has built in: it must start at once. If the server does not answer, it
becomes the Python that was asked for.
"""

import os
import sys
from _signal import SIG_BLOCK, SIG_UNBLOCK, SIGTERM, pthread_sigmask, signal  # type: ignore[import-not-found]
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

LENGTH_BYTES = 8
NUMBER_BYTES = 8
STANDARD_FILES = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
PART = 1 << 16


def request(arguments: list[str]) -> bytes:
    """Directory, arguments and environment, each as one text that ends with a zero byte; an empty one before the
    environment."""
    environment = [name + b"=" + value for name, value in os.environb.items()]
    texts = [os.fsencode(os.getcwd()), *map(os.fsencode, arguments), b"", *environment]
    body = b"".join(text + b"\0" for text in texts)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def ask(path: str, arguments: list[str]) -> socket:
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.connect(path)
    message = request(arguments)
    sent = connection.sendmsg([message[:PART]], [(SOL_SOCKET, SCM_RIGHTS, STANDARD_FILES)])
    connection.sendall(message[sent:])
    return connection


def read_number(connection: socket) -> int | None:
    """None if the server has ended."""
    found = b""
    while len(found) < NUMBER_BYTES:
        part = connection.recv(NUMBER_BYTES - len(found))
        if not part:
            return None
        found += part
    return int.from_bytes(found, "big", signed=True)


def main(python: str, path: str, arguments: list[str]) -> int:
    pthread_sigmask(SIG_BLOCK, (SIGTERM,))  # until there is a process to pass it on to
    try:
        connection = ask(path, arguments)
        pid = read_number(connection)
    except OSError:
        pid = None
    if pid is None:
        pthread_sigmask(SIG_UNBLOCK, (SIGTERM,))
        os.execv(python, [python, *arguments])
    signal(SIGTERM, lambda *_: os.kill(pid, SIGTERM))
    pthread_sigmask(SIG_UNBLOCK, (SIGTERM,))
    code = read_number(connection)
    return 1 if code is None else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
