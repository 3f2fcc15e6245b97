"""A member of a group as a process of its own: reads, notes what it read in its journal, and commits.

    python -m tests.churn.member CLIENT BOOTSTRAP GROUP TOPIC JOURNAL PROTOCOL [INSTANCE_ID]

SIGTERM lets it commit, leave the group and end.
"""

import importlib
import signal
import sys
import threading
from pathlib import Path

from tests.churn.journal import Journal, Ledger
from tests.churn.membership import Options, Protocol

MODULES = {
    "confluent-kafka": "tests.churn.confluent_member",
    "kafka-python": "tests.churn.kafka_python_member",
    "aiokafka": "tests.churn.aiokafka_member",
}


def main(client: str, bootstrap: str, group: str, topic: str, journal: str, protocol: str, *instance_id: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    options = Options(bootstrap, group, topic, Protocol(protocol), instance_id[0] if instance_id else None)
    ledger = Ledger(Journal(Path(journal)))
    importlib.import_module(MODULES[client]).run(options, ledger, ended)
    ledger.closed()


if __name__ == "__main__":
    main(*sys.argv[1:])
