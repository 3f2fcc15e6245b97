"""The page of a real broker, over a real socket."""

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.server.scrape import Scrape
from tidelog.config.broker import BrokerSettings
from tidelog.server.broker import Broker, CannotStart

NOT_LOADED_BEFORE_A_SCRAPE = ("h11", "tidelog.server.metrics.catalogue", "tidelog.server.metrics.exposition")


def settings(directory: Path, metrics_listener: str | None) -> BrokerSettings:
    return BrokerSettings(
        broker_id=1,
        log_dirs=(str(directory),),
        listeners=("PLAINTEXT://127.0.0.1:0",),
        metrics_listener=metrics_listener,
    )


def test_prometheus_can_read_what_a_broker_shows(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(settings(tmp_path, "127.0.0.1:0"))
        assert broker.metrics_server is not None
        url = f"http://127.0.0.1:{broker.metrics_server.port}/metrics"
        content_type, text = await asyncio.to_thread(_get, url)
        assert content_type == "text/plain; version=0.0.4; charset=utf-8"
        found = Scrape(text)
        assert found("kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert found("kafka_server_replicamanager_partitioncount") == 0
        await broker.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", broker.metrics_server.port)

    asyncio.run(main())


def test_health_pages_tell_a_live_broker_from_a_ready_one(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(settings(tmp_path, "127.0.0.1:0"))
        assert broker.metrics_server is not None
        address = f"http://127.0.0.1:{broker.metrics_server.port}/health"
        assert await asyncio.to_thread(_get, f"{address}/live") == ("text/plain; charset=utf-8", "live\n")
        assert (await asyncio.to_thread(_get, f"{address}/ready"))[1] == "ready\n"
        broker._unready = "the broker is stopping"
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(_get, f"{address}/ready")
        assert (refused.value.code, refused.value.read()) == (503, b"503: the broker is stopping\n")
        refused.value.close()
        await broker.stop()

    asyncio.run(main())


def _get(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.headers["Content-Type"], response.read().decode()


def test_without_the_setting_there_is_no_page(tmp_path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(settings(tmp_path, None))
        assert broker.metrics_server is None
        await broker.stop()

    asyncio.run(main())


def test_an_address_that_is_taken_is_refused_before_anything_changes(tmp_path: Path) -> None:
    async def main() -> None:
        other = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        with pytest.raises(
            CannotStart, match=f"cannot serve metrics on 127.0.0.1:{port}: .*metrics.listener=HOST:PORT"
        ):
            await Broker.start(settings(tmp_path / "logs", f"127.0.0.1:{port}"))
        assert not (tmp_path / "logs").exists()
        other.close()
        await other.wait_closed()

    asyncio.run(main())


def test_a_broker_that_nobody_scrapes_does_not_load_what_scraping_needs() -> None:
    program = "import sys, tidelog.server.broker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "tidelog.server.metrics.page" in loaded
    assert not set(NOT_LOADED_BEFORE_A_SCRAPE) & set(loaded)
