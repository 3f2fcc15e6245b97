"""One trial: a query from topic to topic, killed at each step of its micro-batches, and what became of the records."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.clients.broker import TidelogProcess
from tests.kills.pipeline import last_number, records_of_topic
from tests.kills.process_tree import kill_tree
from tests.kills.producer import NumberingProducer
from tests.kills.step_driver import Orders
from tests.kills.steps import Blow, Victim
from tests.kills.trial import LOCAL_MASTER, PARTITIONS, Say, TrialFailed, make_topics
from tests.kills.verdict import Findings, examine
from tests.spark.cluster import StandaloneCluster

POLL_S = 0.05
LIMIT_S = 300.0


def strike(blows: Sequence[Blow], seed: int, directory: Path, say: Say, *, on_cluster: bool) -> Findings:
    with ExitStack() as stack:
        broker = TidelogProcess(directory / "broker")
        broker.start()
        stack.callback(broker.kill)
        cluster = stack.enter_context(StandaloneCluster(directory)) if on_cluster else None
        make_topics(broker.bootstrap)
        query = StruckQuery(directory, broker, cluster)
        stack.callback(query.kill)
        producer = NumberingProducer(broker.bootstrap, "source", seed, query.count_read)
        producer.start()
        query.start()
        query.wait_for_batches()
        for number, blow in enumerate(blows, 1):
            began_s = time.monotonic()
            query.strike(blow)
            query.wait_for_batches()
            say(f"{number:>3}  {blow.victim:<14} {blow.step:<38} recovered in {time.monotonic() - began_s:>5.1f} s")
        produced = producer.stop()
        query.finish(sum(produced.values()))
        return examine(produced, records_of_topic(broker.bootstrap, "copy", PARTITIONS))


class StruckQuery:
    """A killed process comes back at once."""

    def __init__(self, directory: Path, broker: TidelogProcess, cluster: StandaloneCluster | None) -> None:
        self._broker = broker
        self._cluster = cluster
        self._checkpoint = directory / "checkpoint"
        self._output = directory / "driver.log"
        orders = directory / "orders"
        orders.mkdir()
        self._orders = Orders(str(orders))
        settings = {
            "master": LOCAL_MASTER if cluster is None else cluster.master,
            "bootstrap": broker.bootstrap,
            "source": "source",
            "copy": "copy",
            "checkpoint": str(self._checkpoint),
            "orders": str(orders),
        }
        self._command = [sys.executable, "-m", "tests.kills.step_driver", json.dumps(settings)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._orders.name(Victim.BROKER, self._broker.pid)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output)

    def kill(self) -> None:
        if self._process is not None:
            kill_tree(self._process.pid)
            self._process.wait()

    def strike(self, blow: Blow) -> None:
        if blow.victim is Victim.EXECUTOR:
            self._name_executors()
        self._orders.give(*blow)
        self._wait(lambda: self._orders.is_taken(blow.step), f"did not come to the step {blow.step!r}")
        if blow.victim is Victim.BROKER:
            self._broker.kill()
            self._broker.start()
            self._orders.name(Victim.BROKER, self._broker.pid)
        elif blow.victim is Victim.DRIVER:
            self.kill()
            self.start()

    def _name_executors(self) -> None:
        cluster = self._cluster
        assert cluster is not None, "only a cluster has executors of its own"
        self._wait(lambda: bool(cluster.executors()), "has no executor")
        self._orders.name(Victim.EXECUTOR, *(process.pid for process in cluster.executors()))

    def wait_for_batches(self, count: int = 2) -> None:
        wanted = last_number(self._checkpoint / "commits") + count
        self._wait(lambda: last_number(self._checkpoint / "commits") >= wanted, "makes no progress")

    def finish(self, produced: int) -> None:
        self._wait(lambda: self.count_read() >= produced, "has not read everything")
        Path(self._orders.directory, "stop").touch()
        assert self._process is not None
        if self._process.wait(LIMIT_S) != 0:
            raise TrialFailed(f"the query did not end well:\n{self._output.read_text()[-3000:]}")

    def count_read(self) -> int:
        batch = last_number(self._checkpoint / "commits")
        if batch < 0:
            return 0
        line = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return sum(json.loads(line)["source"].values())

    def _wait(self, is_reached: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not is_reached():
            if time.monotonic() > deadline:
                raise TrialFailed(f"the query {otherwise} after {LIMIT_S:.0f} s:\n{self._output.read_text()[-3000:]}")
            time.sleep(POLL_S)
