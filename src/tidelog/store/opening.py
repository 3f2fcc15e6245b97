"""Factory for the store that the settings choose."""

from functools import partial

from tidelog.config.broker import BrokerSettings
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Disk
from tidelog.runtime.tls_context import client_context
from tidelog.runtime.workers import RepeatingWorkers
from tidelog.store.interface import Store, StoreUnavailable
from tidelog.store.sqlite import SqliteStore


async def open_store(settings: BrokerSettings, disk: Disk, clock: Clock, workers: RepeatingWorkers) -> Store:
    """Opens a new session."""
    if settings.zookeeper_connect:
        # Imported here: a broker without ZooKeeper starts faster without its client.
        from tidelog.store.zookeeper import ZooKeeperStore

        tls = settings.zookeeper_tls
        make_context = None if tls is None else partial(client_context, tls)
        if make_context is not None:
            try:
                make_context()
            except OSError as error:
                raise StoreUnavailable("", f"zookeeper.ssl: {error}") from error
        return await ZooKeeperStore.open(
            settings.zookeeper_connect,
            clock,
            workers,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
            tls=make_context,
        )
    return await SqliteStore.open(
        settings.coordination_store_path,
        disk,
        clock,
        workers,
        session_timeout_ms=settings.broker_session_timeout_ms,
        heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
    )
