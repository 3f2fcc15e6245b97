"""Copies records from one topic to another in transactions, together with how far its group has come.

    python -m tests.churn.worker CLIENT BOOTSTRAP GROUP SOURCE TARGET TRANSACTIONAL_ID PARTITION

Now and then it aborts a transaction on purpose: what was in it must never be seen. SIGTERM ends it.
"""

import importlib
import signal
import sys
import threading

from tests.churn.copying import Job

MODULES = {"confluent-kafka": "tests.churn.confluent_worker", "tidelog": "tests.churn.tidelog_worker"}


def main(
    client: str, bootstrap: str, group: str, source: str, target: str, transactional_id: str, partition: str
) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    job = Job(bootstrap, group, source, target, transactional_id, int(partition))
    importlib.import_module(MODULES[client]).run(job, ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
