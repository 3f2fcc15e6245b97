"""Spark master URLs: their form, and whether a standalone master answers."""

import re
import socket

from tidelog.numerals import natural_number

FORMS = re.compile(r"local|local\[.+\]|local-cluster\[.+\]|yarn|[a-z][a-z0-9+.-]*://.+")
STANDALONE = "spark://"
ANSWER_TIMEOUT_S = 5.0


class WrongMaster(RuntimeError):
    """Spark cannot use the master; the message says why and what to do."""


def reject_wrong_master(master: str) -> None:
    """Spark itself tries an unreachable master for a minute, then fails with a null pointer."""
    if not FORMS.fullmatch(master):
        raise WrongMaster(
            f"'{master}' is not a Spark master: use local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        )
    if master.startswith(STANDALONE):
        _reject_silent(master)


def _reject_silent(master: str) -> None:
    reasons = []
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or natural_number(port) is None:
            raise WrongMaster(f"'{master}' is not a Spark master: use spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_TIMEOUT_S).close()
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise WrongMaster(f"no Spark master answers at {master} ({'; '.join(reasons)}); start it, or correct the master")
