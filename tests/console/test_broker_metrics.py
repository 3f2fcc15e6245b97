"""Metrics that the console reads from the `/metrics` page of a real broker."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidelog.client import Producer
from tidelog.config.broker import BrokerSettings
from tidelog.console.broker_latencies import BrokerLatencies
from tidelog.console.broker_metrics import BrokerMetrics
from tidelog.server.broker import Broker

BROKER_ID = 1


def settings(directory: Path) -> BrokerSettings:
    return BrokerSettings(
        broker_id=BROKER_ID,
        log_dirs=(str(directory),),
        listeners=("PLAINTEXT://127.0.0.1:0",),
        metrics_listener="127.0.0.1:0",
    )


def test_latencies_of_produce_are_those_that_the_broker_measured(tmp_path: Path) -> None:
    cluster: Any = SimpleNamespace(metadata=SimpleNamespace(brokers={BROKER_ID: None}))

    async def main() -> None:
        broker = await Broker.start(settings(tmp_path))
        assert broker.metrics_server is not None
        metrics, latencies = BrokerMetrics(), BrokerLatencies()
        metrics.urls[BROKER_ID] = f"http://127.0.0.1:{broker.metrics_server.port}/metrics"
        latencies.add(0, (await metrics.read(cluster)).histograms)
        async with Producer(f"127.0.0.1:{broker.listeners[0].port}") as producer:
            await producer.send("orders", b"hello")
        reading = await metrics.read(cluster)
        latencies.add(5_000, reading.histograms)
        found = latencies.percentiles()
        assert 0 < found["produce_p50"] <= found["produce_p99"]
        assert "fetch_p50" not in found, "nobody has fetched"
        assert reading.counters["produce_requests"] == 1
        await broker.stop()

    asyncio.run(main())
