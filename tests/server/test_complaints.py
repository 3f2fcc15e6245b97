"""Peers that send nonsense do not fill the log."""

import asyncio
import logging
import struct

import pytest

from tests.server.harness import Client, World, with_broker
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.peer_error_log import LINES_PER_MINUTE, MAX_PEERS, Complaints

logger = logging.getLogger("complaints")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_peer_has_a_few_lines_a_minute_and_one_that_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        complaints = Complaints(logger)
        for _ in range(2):
            for number in range(1000):
                if complaints.may_tell("peer"):
                    logger.warning("bad request number=%d", number)
            assert complaints.may_tell("another")
            await asyncio.sleep(61)

    run_virtually(main())
    minute = [f"bad request number={number}" for number in range(LINES_PER_MINUTE)]
    summary = "left out lines about a peer in the last minute peer=peer lines=995"
    assert told(caplog) == [*minute, summary] * 2


def test_a_peer_that_stays_within_the_limit_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        complaints = Complaints(logger)
        assert complaints.may_tell("peer")
        await asyncio.sleep(61)
        assert complaints._counts == {}

    run_virtually(main())
    assert told(caplog) == []


def test_any_number_of_addresses_costs_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        complaints = Complaints(logger)
        hosts = [f"10.0.{number >> 8}.{number & 255}" for number in range(10 * MAX_PEERS)]
        assert sum(map(complaints.may_tell, hosts)) == MAX_PEERS + LINES_PER_MINUTE
        assert len(complaints._counts) <= MAX_PEERS + 1
        await asyncio.sleep(61)

    run_virtually(main())
    assert len(told(caplog)) == 1


def test_bad_frames_of_one_peer_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World, client: Client) -> None:
        for _ in range(50):
            bad = await world.connect()
            bad.channel.send([struct.pack(">hhih", 999, 0, 1, -1)])
            bad.channel.flush()
            await asyncio.sleep(0.01)
            assert bad.closed_because is not None
        await asyncio.sleep(61)

    with_broker(scenario)
    bad_requests = [line for line in told(caplog) if "bad request" in line]
    assert len(bad_requests) == LINES_PER_MINUTE
    assert [line for line in told(caplog) if "left out" in line and "lines=45" in line]
