"""Factory for the store that the settings choose."""

from tidelog.config.broker import BrokerSettings
from tidelog.runtime.clock import Clock
from tidelog.runtime.disk import Disk
from tidelog.runtime.randomness import Randomness
from tidelog.runtime.workers import RepeatingWorkers
from tidelog.store.interface import Store
from tidelog.store.sqlite import SqliteStore


async def open_store(
    settings: BrokerSettings, disk: Disk, clock: Clock, workers: RepeatingWorkers, randomness: Randomness
) -> Store:
    """Opens a new session."""
    if settings.zookeeper_connect:
        # Imported here: a broker without ZooKeeper starts faster without its client.
        from tidelog.store.zookeeper_opening import open_zookeeper_store

        return await open_zookeeper_store(settings, clock, workers, randomness)
    return await SqliteStore.open(
        settings.coordination_store_path,
        disk,
        clock,
        workers,
        session_timeout_ms=settings.broker_session_timeout_ms,
        heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
    )
