"""The tour counts what readers of committed records see, not offsets: transactions take some for their markers."""

from pathlib import Path

import pytest

from demo.reading import records_of_topic
from tests.clients.broker import TidelogProcess


@pytest.mark.processes
def test_all_committed_records_are_read_and_no_others(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    broker = TidelogProcess(tmp_path)
    broker.start()
    try:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "shop"})
        producer.init_transactions(30)
        for value in (b"kept", b"taken back", b"kept, too"):
            producer.begin_transaction()
            producer.produce("orders", value, partition=0)
            producer.flush(30)
            if value == b"taken back":
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
        found = records_of_topic(broker.bootstrap, "orders")
    finally:
        broker.kill()
    assert [record.value for record in found] == [b"kept", b"kept, too"]
