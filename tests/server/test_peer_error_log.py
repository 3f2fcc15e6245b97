"""Peers that send nonsense do not fill the log."""

import asyncio
import logging
import struct

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.peer_error_log import LINES_PER_MINUTE, MAX_PEERS, PeerErrorLog

logger = logging.getLogger("peer_errors")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_peer_has_a_few_lines_a_minute_and_one_that_counts_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        peer_errors = PeerErrorLog(logger)
        for _ in range(2):
            for number in range(1000):
                if peer_errors.should_log("peer"):
                    logger.warning("bad request number=%d", number)
            assert peer_errors.should_log("another")
            await asyncio.sleep(61)

    run_virtually(main())
    minute = [f"bad request number={number}" for number in range(LINES_PER_MINUTE)]
    summary = "suppressed log lines in the last minute peer=peer lines=995"
    assert logged(caplog) == [*minute, summary] * 2


def test_a_peer_that_stays_within_the_limit_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        peer_errors = PeerErrorLog(logger)
        assert peer_errors.should_log("peer")
        await asyncio.sleep(61)
        assert peer_errors._counts == {}

    run_virtually(main())
    assert logged(caplog) == []


def test_any_number_of_addresses_costs_a_bounded_number_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        peer_errors = PeerErrorLog(logger)
        hosts = [f"10.0.{number >> 8}.{number & 255}" for number in range(10 * MAX_PEERS)]
        assert sum(map(peer_errors.should_log, hosts)) == MAX_PEERS + LINES_PER_MINUTE
        assert len(peer_errors._counts) <= MAX_PEERS + 1
        await asyncio.sleep(61)

    run_virtually(main())
    assert len(logged(caplog)) == 1


def test_bad_frames_of_one_peer_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for _ in range(50):
            bad = await harness.connect()
            bad.channel.send([struct.pack(">hhih", 999, 0, 1, -1)])
            bad.channel.flush()
            await asyncio.sleep(0.01)
            assert bad.closed_because is not None
        await asyncio.sleep(61)

    with_broker(scenario)
    bad_requests = [line for line in logged(caplog) if "bad request" in line]
    assert len(bad_requests) == LINES_PER_MINUTE
    assert [line for line in logged(caplog) if "suppressed log lines" in line and "lines=45" in line]
