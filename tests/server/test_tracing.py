"""Traces of requests: spans of a broker, collected by OpenTelemetry's own SDK."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.server.harness import Client, Harness, fetch_request
from tidelog.client import Producer
from tidelog.config.broker import BrokerSettings
from tidelog.protocol.messages.fetch import FetchResponse
from tidelog.quotas.entities import DEFAULT, REQUEST_PERCENTAGE, QuotaEntity
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server import tracing
from tidelog.server.broker import Broker, CannotStart
from tidelog.server.tracing import Tracing

needs_opentelemetry = pytest.mark.skipif(find_spec("opentelemetry") is None, reason="needs tidelog[tracing]")

Scenario = Callable[[Broker, Client], Awaitable[None]]


def spans_of(scenario: Scenario) -> list[Any]:
    """The finished spans of a broker for which things happened on virtual time."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def main() -> None:
        harness = Harness()
        harness.tracing = Tracing(provider)
        async with harness.broker() as broker:
            await scenario(broker, await harness.connect("shop"))

    run_virtually(main())
    return list(exporter.get_finished_spans())


async def produce_and_fetch(broker: Broker, client: Client) -> None:
    await client.create_topic("orders")
    await client.produce("orders", b"a", acks=1)
    await client.ask(fetch_request("orders", 1, max_wait_ms=500), 12, FetchResponse)


@needs_opentelemetry
def test_each_request_of_a_client_has_a_span_with_its_api() -> None:
    found = {
        span.name: span for span in spans_of(produce_and_fetch) if span.attributes["messaging.client.id"] == "shop"
    }
    assert {"CreateTopics", "Produce", "Fetch"} <= found.keys()
    produced = found["Produce"]
    assert produced.kind.name == "SERVER"
    assert produced.attributes["messaging.system"] == "kafka"
    assert produced.attributes["kafka.api_version"] == 9
    assert produced.attributes["kafka.listener"] == "PLAINTEXT"
    assert produced.attributes["kafka.request_bytes"] > 0
    assert all(span.end_time >= span.start_time for span in found.values())


@needs_opentelemetry
def test_a_request_whose_client_leaves_has_a_span_that_says_so() -> None:
    async def leave(broker: Broker, client: Client) -> None:
        await client.create_topic("orders")
        waiting = client.start(fetch_request("orders", 0, max_wait_ms=5000), 12)
        await asyncio.sleep(1)
        client.channel.close("enough")
        await asyncio.sleep(1)
        waiting.cancel()

    (fetched,) = [span for span in spans_of(leave) if span.name == "Fetch"]
    assert fetched.attributes["kafka.connection_closed"] is True


@needs_opentelemetry
def test_a_request_that_fails_has_a_span_with_its_error() -> None:
    async def send_nonsense(broker: Broker, client: Client) -> None:
        client.send_raw(b"\x00\x00\x00\x09" + bytes(8))
        await asyncio.sleep(1)

    (failed,) = [span for span in spans_of(send_nonsense) if not span.status.is_ok]
    assert failed.events[0].name == "exception"


@needs_opentelemetry
def test_requests_are_traced_with_quotas_too() -> None:
    async def with_quotas(broker: Broker, client: Client) -> None:
        broker._services.client_quotas.table.replace(QuotaEntity(DEFAULT), {REQUEST_PERCENTAGE: 100})
        broker.acceptor.dispatcher.on_quotas_changed()
        await client.create_topic("orders")

    assert "CreateTopics" in {span.name for span in spans_of(with_quotas)}


def settings(directory: Path, endpoint: str | None) -> BrokerSettings:
    return BrokerSettings(
        broker_id=1, log_dirs=(str(directory),), listeners=("PLAINTEXT://127.0.0.1:0",), tracing_endpoint=endpoint
    )


class Collector(BaseHTTPRequestHandler):
    """Takes spans as an OpenTelemetry collector does."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Content-Type"], body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@needs_opentelemetry
def test_spans_reach_a_collector_when_the_broker_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        collector.received = []  # type: ignore[attr-defined]
        Thread(target=collector.serve_forever, daemon=True).start()

        async def main() -> None:
            endpoint = f"http://127.0.0.1:{collector.server_address[1]}/v1/traces"
            broker = await Broker.start(settings(tmp_path, endpoint))
            async with Producer(f"127.0.0.1:{broker.listeners[0].port}") as producer:
                await producer.send("orders", b"hello")
            await broker.stop()

        asyncio.run(main())
        collector.shutdown()
        received = collector.received  # type: ignore[attr-defined]
    assert {(path, kind) for path, kind, _ in received} == {("/v1/traces", "application/x-protobuf")}
    sent = b"".join(body for _, _, body in received)
    assert b"Produce" in sent
    assert b"tidelog" in sent


def test_without_the_setting_nothing_is_imported_and_no_request_passes(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from tidelog.config.broker import BrokerSettings
from tidelog.server.broker import Broker
async def main():
    broker = await Broker.start(BrokerSettings(broker_id=1, log_dirs=(sys.argv[1],), listeners=("PLAINTEXT://127.0.0.1:0",)))
    assert "start" not in vars(broker.acceptor.dispatcher)
    await broker.stop()
asyncio.run(main())
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)


@pytest.mark.parametrize(
    ("endpoint", "is_installed", "sentence"),
    [
        ("127.0.0.1:4318", True, "tracing.endpoint: 127.0.0.1:4318 is not a URL such as"),
        ("http://127.0.0.1:4318/v1/traces", False, "pip install 'tidelog[tracing]'"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, is_installed: bool, sentence: str
) -> None:
    monkeypatch.setattr(tracing, "_is_installed", lambda: is_installed)
    with pytest.raises(CannotStart) as refused:
        asyncio.run(Broker.start(settings(tmp_path, endpoint)))
    assert sentence in str(refused.value)
