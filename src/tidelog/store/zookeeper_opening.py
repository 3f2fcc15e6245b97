"""Opening of the ZooKeeper store as the settings say: TLS, login and ACLs."""

from functools import partial

from tidelog.config.broker import BrokerSettings
from tidelog.config.setting import BadValue
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import Randomness
from tidelog.runtime.tls_context import client_context
from tidelog.runtime.workers import RepeatingWorkers
from tidelog.store.interface import StoreError, StoreUnavailable
from tidelog.store.kazoo_login import KazooLogin
from tidelog.store.zookeeper import ZooKeeperStore
from tidelog.store.zookeeper_login import ZooKeeperLogin


async def open_zookeeper_store(
    settings: BrokerSettings, clock: Clock, workers: RepeatingWorkers, randomness: Randomness
) -> ZooKeeperStore:
    """Opens a new session. A JAAS file is read again for each, so that a password can be changed."""
    assert settings.zookeeper_connect is not None
    tls = settings.zookeeper_tls
    make_context = None if tls is None else partial(client_context, tls)
    if make_context is not None:
        try:
            make_context()
        except OSError as error:
            raise StoreUnavailable("", f"zookeeper.ssl: {error}") from error
    try:
        user = settings.zookeeper_user
    except BadValue as error:
        raise StoreError("", f"login to ZooKeeper: {error}") from error
    return await ZooKeeperStore.open(
        settings.zookeeper_connect,
        clock,
        workers,
        session_timeout_ms=settings.zookeeper_session_timeout_ms,
        connection_timeout_ms=settings.zookeeper_connection_timeout_ms,
        tls=make_context,
        login=None if user is None else KazooLogin(ZooKeeperLogin(*user), randomness.bytes),
        sets_acls=settings.zookeeper_set_acl,
    )
