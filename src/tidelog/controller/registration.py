"""How a broker joins its cluster: the cluster's id, the broker's id, its registration, the controller's office."""

import asyncio
import contextlib
import logging
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import Broker
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import Randomness
from tidelog.store.interface import BadVersion, Create, NodeExists, Operation, Set, Store
from tidelog.types import BrokerId, uuid_text

logger = logging.getLogger(__name__)

FIRST_CONTROLLER_EPOCH = 1


REGISTRATION_PAUSE_S = 0.1
PATIENCE_WITH_AN_OLD_SESSION = 1.5
"""In session timeouts."""


class BrokerIdInUse(Exception):
    """Another broker of the cluster is registered under this id."""

    def __init__(self, broker_id: BrokerId) -> None:
        super().__init__(f"another broker with id {broker_id} is running in this cluster")


class ControllerFence(NamedTuple):
    """Every write the controller makes names the version of the epoch's node, so that it fails after the term (R31)."""

    epoch: int
    epoch_version: int


async def prepare_store(store: Store) -> None:
    """Make the nodes that everything else hangs on."""
    nodes = await store.get_many(znodes.PERSISTENT_PATHS)
    missing = [path for path, node in zip(znodes.PERSISTENT_PATHS, nodes, strict=True) if node is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except NodeExists:  # another broker is at it: take what it left
        for path in missing:
            with contextlib.suppress(NodeExists):
                await store.create(path)


async def find_cluster_id(store: Store, randomness: Randomness, wanted: str | None = None) -> str:
    """The cluster's id; the first broker gives it: `wanted` if its log directories have one, else a new one."""
    existing = await store.exists(znodes.CLUSTER_ID)
    if existing is None:
        cluster_id = wanted or uuid_text(randomness.bytes(16))
        with contextlib.suppress(NodeExists):
            await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
        existing = await store.get(znodes.CLUSTER_ID)
    return znodes.decode_cluster_id(existing.data)


async def generate_broker_id(store: Store, reserved_broker_max_id: int) -> BrokerId:
    """A number nobody has: the version of a node that only this raises."""
    node = await store.set(znodes.BROKER_SEQUENCE, b"")
    return reserved_broker_max_id + node.version


async def wait_for_free_id(store: Store, broker_id: BrokerId, clock: Clock, session_timeout_ms: int) -> None:
    """An earlier process of this broker may have died so lately that its session still stands."""
    deadline = clock.monotonic() + session_timeout_ms / 1000 * PATIENCE_WITH_AN_OLD_SESSION
    is_told = False
    while await store.exists(znodes.broker_path(broker_id)) is not None:
        if clock.monotonic() >= deadline:
            raise BrokerIdInUse(broker_id)
        if not is_told:
            is_told = True
            logger.info("waiting for the session of an earlier process to end broker_id=%d", broker_id)
        await asyncio.sleep(REGISTRATION_PAUSE_S)


async def register_broker(store: Store, broker: Broker, clock: Clock) -> Broker:
    """Announce the broker as long as its session lives; the answer has its epoch (R39).

    The node may be there already because the connection was lost before an earlier attempt was answered.
    Nodes of its new log directories are made in the same transaction: they tell in which epoch these appeared (R42).
    """
    path = znodes.broker_path(broker.id)
    registration = Create(path, znodes.encode_broker(broker, clock.now_ms()), ephemeral=True)
    with contextlib.suppress(NodeExists):
        await store.multi([registration, *await _new_directories(store, broker)])
    node = await store.exists(path)
    if node is None or node.ephemeral_owner != store.session_id:
        raise BrokerIdInUse(broker.id)
    return znodes.decode_broker(broker.id, node.data, epoch=node.created_id)


async def _new_directories(store: Store, broker: Broker) -> list[Operation]:
    parent = znodes.log_directories_path(broker.id)
    paths = [znodes.log_directory_path(broker.id, each) for each in broker.directory_ids]
    if not paths:
        return []
    known, *nodes = await store.get_many([parent, *paths])
    missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
    # A broker that never had such nodes is new, or was upgraded: then it had these directories all along.
    data = znodes.encode_log_directory(is_from_the_beginning=known is None)
    operations: list[Operation] = [Create(path, data) for path in missing]
    if known is None:
        return [Create(parent), *operations]
    if known.data == znodes.UNREGISTERED_BROKER:
        return [Set(parent, b"", known.version), *operations]
    return operations


async def claim_controller(store: Store, broker_id: BrokerId, clock: Clock) -> ControllerFence | None:
    """Become controller and raise the epoch, in one step; None if another broker is or became controller."""
    await _ensure_controller_epoch(store)
    node = await store.get(znodes.CONTROLLER_EPOCH)
    epoch = znodes.decode_controller_epoch(node.data) + 1
    term = Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, clock.now_ms()), ephemeral=True)
    try:
        await store.multi([term, Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), node.version)])
    except (NodeExists, BadVersion):
        return None
    logger.info("became controller broker_id=%d controller_epoch=%d", broker_id, epoch)
    return ControllerFence(epoch, node.version + 1)


async def _ensure_controller_epoch(store: Store) -> None:
    if await store.exists(znodes.CONTROLLER_EPOCH) is None:
        with contextlib.suppress(NodeExists):
            before_first = znodes.encode_controller_epoch(FIRST_CONTROLLER_EPOCH - 1)
            await store.create(znodes.CONTROLLER_EPOCH, before_first)
