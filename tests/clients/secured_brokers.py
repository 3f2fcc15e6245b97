"""Brokers with TLS or logins in the process of a test, on one SQLite store."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.certificates import Certificate
from tidelog.config.broker import BrokerSettings
from tidelog.server.broker import Broker


@asynccontextmanager
async def secured_brokers(
    directory: Path, certificate: Certificate, protocol: str, count: int, **settings: object
) -> AsyncIterator[list[Broker]]:
    """Each has one listener, for clients and brokers."""
    async with AsyncExitStack() as stack:
        started = []
        for broker_id in range(1, count + 1):
            values = {
                "broker_id": broker_id,
                "log_dirs": (str(directory / f"broker-{broker_id}"),),
                "coordination_store": str(directory / "coordination.sqlite"),
                "listeners": (f"{protocol}://127.0.0.1:0",),
                "security_inter_broker_protocol": protocol,
                **certificate.ssl_settings,
                **settings,
            }
            broker = await Broker.start(BrokerSettings(**values))  # type: ignore[arg-type]
            stack.push_async_callback(broker.stop)
            started.append(broker)
        yield started
