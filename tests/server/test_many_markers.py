"""WriteTxnMarkers of very many partitions: each marker is a step of its own."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.server.harness import Harness
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.runtime.turns import Turns
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.handlers import write_txn_markers

COUNT = 300


@pytest.mark.parametrize("is_privileged", [False, True])
def test_other_work_runs_between_the_markers_of_a_request(is_privileged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turns, "is_slice_over", lambda _: True)
    turn = 0
    written: Counter[int] = Counter()
    write = write_txn_markers._Written.write

    def counted(*arguments: Any) -> Any:
        written[turn] += 1
        return write(*arguments)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(write_txn_markers._Written, "write", counted)

    async def main() -> None:
        harness = Harness()
        async with harness.broker() as broker:
            client = await (harness.connect_as_broker(broker) if is_privileged else harness.connect())
            await client.create_topic("tides")
            topics = [WritableTxnMarkerTopic("tides", [0])]
            markers = [WritableTxnMarker(number, 0, False, topics, 0) for number in range(COUNT)]
            turns = asyncio.create_task(count_turns())
            response = await client.ask(WriteTxnMarkersRequest(markers), 1, WriteTxnMarkersResponse)
            turns.cancel()
            codes = [each.topics[0].partitions[0].error_code for each in response.markers]
            assert codes == [NO_ERROR] * COUNT
            assert max(written.values()) <= write_txn_markers.BROKER_MARKERS_AT_ONCE

    run_virtually(main())
