"""Spark master URLs: their form, and whether a standalone master or Kubernetes answers."""

import os
import re
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

from tidelog.numerals import natural_number

FORMS = re.compile(
    r"local|local\[(?:\*|0*[1-9][0-9]*)(?:\s*,\s*[0-9]+)?\]|local-cluster\[.+\]|yarn|[a-z][a-z0-9+.-]*://.+"
)
STANDALONE = "spark://"
KUBERNETES = "k8s://"
HTTPS_PORT = 443
HTTP_PORT = 80
ANSWER_TIMEOUT_S = 5.0


class WrongMaster(RuntimeError):
    """Spark cannot use the master; the message says why and what to do."""


def reject_wrong_master(master: str) -> None:
    """Spark itself tries an unreachable master for a minute, then fails with a null pointer."""
    if not FORMS.fullmatch(master):
        raise WrongMaster(
            f"'{master}' is not a Spark master: use local[N], spark://HOST:PORT, yarn or k8s://https://HOST:PORT"
        )
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise WrongMaster("master yarn: set HADOOP_CONF_DIR to the directory of the cluster's configuration")
    if master.startswith(STANDALONE):
        _reject_silent_standalone(master)
    if master.startswith(KUBERNETES):
        _reject_silent_kubernetes(master)


def _reject_silent_standalone(master: str) -> None:
    reasons = []
    for address in master.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or natural_number(port) is None:
            raise WrongMaster(f"'{master}' is not a Spark master: use spark://HOST:PORT")
        reason = _reason_of_silence(host.strip("[]"), int(port))
        if reason is None:
            return
        reasons.append(f"{address}: {reason}")
    raise WrongMaster(f"no Spark master answers at {master} ({'; '.join(reasons)}); start it, or correct the master")


def _reject_silent_kubernetes(master: str) -> None:
    address = master.removeprefix(KUBERNETES)
    url = urlsplit(address if "://" in address else f"https://{address}")
    try:
        port = url.port or (HTTP_PORT if url.scheme == "http" else HTTPS_PORT)
    except ValueError:
        port = None
    if not url.hostname or port is None:
        raise WrongMaster(f"'{master}' is not a Spark master: use k8s://https://HOST:PORT")
    reason = _reason_of_silence(url.hostname, port)
    if reason is not None and not getproxies():
        raise WrongMaster(f"no Kubernetes API answers at {master} ({reason}); correct the master")


def _reason_of_silence(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), timeout=ANSWER_TIMEOUT_S).close()
    except OSError as error:
        return str(error.strerror or error)
    return None
