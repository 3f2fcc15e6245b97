"""A producer writes through a restart of its broker: nothing acknowledged is lost, nothing is written twice."""

import gc
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.clients.broker import BrokerProcess, ForeignBroker, new_broker
from tests.clients.conftest import CLIENT_MARKS, Clients
from tests.clients.driver import TIMEOUT_S, Rejected, Writer, WriterReport
from tests.clients.features import Workbench
from tests.clients.registry import CLIENTS

pytestmark = [
    *CLIENT_MARKS,
    # kafka-python drops the sockets of refused connections without closing them.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

RECORDS_BEFORE_AND_AFTER = 150
PACE_S = 0.001
UNKNOWN = -1


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = new_broker(tmp_path)
    if isinstance(process, ForeignBroker):
        pytest.skip("a broker that was started elsewhere cannot be restarted")
    process.start()
    yield process
    process.kill()


@pytest.fixture
def own_clients(own_broker: BrokerProcess) -> Iterator[Clients]:
    connected = Clients(own_broker.bootstrap)
    yield connected
    connected.close()
    del connected
    gc.collect()  # while the sockets that kafka-python dropped are still forgiven


def restart_gracefully(broker: BrokerProcess) -> None:
    broker.stop()
    broker.start()


def restart_after_kill(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


class PacedWriter:
    """Writes numbered records at an even pace, as long as somebody wants more."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._count = 0

    def write_while(self, wanted: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while wanted():
            assert time.monotonic() < deadline, f"no progress after {self._count} records"
            for _ in range(20):
                self._writer.send(b"record %d" % self._count)
                self._count += 1
                time.sleep(PACE_S)


class Observer:
    """Looks at the log from outside, with a client that always asks for the leader again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._client = CLIENTS["kafka-python"].connect(bootstrap)
        self._topic = topic

    def end_offset(self) -> int:
        try:
            return self._client.list_offset(self._topic, 0, "latest") or 0
        except Rejected:
            return UNKNOWN

    def values(self) -> list[bytes]:
        return [one.value or b"" for one in self._client.consume(self._topic, 0, 0, self.end_offset())]

    def close(self) -> None:
        self._client.close()


def write_through(
    clients: Clients, name: str, broker: BrokerProcess, restart: Callable[[BrokerProcess], None], *, idempotent: bool
) -> tuple[WriterReport, list[bytes]]:
    """Restarts the broker under a writer; returns the acknowledgements of the writer and what is in the log."""
    topic = Workbench(clients.helper, clients.helper, broker).new_topic()
    writer = clients.get(name).open_writer(topic, idempotent=idempotent)
    try:
        restart_under(PacedWriter(writer), broker, restart, topic)
    finally:
        report = writer.close()
    with closing(Observer(broker.bootstrap, topic)) as observer:
        return report, observer.values()


def restart_under(
    writer: PacedWriter, broker: BrokerProcess, restart: Callable[[BrokerProcess], None], topic: str
) -> None:
    with closing(Observer(broker.bootstrap, topic)) as before:
        writer.write_while(lambda: before.end_offset() < RECORDS_BEFORE_AND_AFTER)
    with ThreadPoolExecutor(1) as others:
        restarting = others.submit(restart, broker)
        writer.write_while(lambda: not restarting.done())
        restarting.result()
    with closing(Observer(broker.bootstrap, topic)) as after:
        writer.write_while(lambda: after.end_offset() == UNKNOWN)
        end_after_restart = after.end_offset()
        writer.write_while(lambda: after.end_offset() < end_after_restart + RECORDS_BEFORE_AND_AFTER)


@pytest.mark.parametrize("restart", [restart_gracefully, restart_after_kill])
@pytest.mark.parametrize("name", CLIENTS)
def test_idempotent_producer_loses_and_repeats_nothing(
    name: str, restart: Callable[[BrokerProcess], None], own_broker: BrokerProcess, own_clients: Clients
) -> None:
    report, stored = write_through(own_clients, name, own_broker, restart, idempotent=True)
    assert report.failed == []
    assert report.acknowledged == report.sent
    assert stored == report.sent


@pytest.mark.parametrize("restart", [restart_gracefully, restart_after_kill])
@pytest.mark.parametrize("name", CLIENTS)
def test_plain_producer_loses_nothing_that_was_acknowledged(
    name: str, restart: Callable[[BrokerProcess], None], own_broker: BrokerProcess, own_clients: Clients
) -> None:
    report, stored = write_through(own_clients, name, own_broker, restart, idempotent=False)
    assert len(report.acknowledged) > RECORDS_BEFORE_AND_AFTER
    assert set(report.acknowledged) <= set(stored)
