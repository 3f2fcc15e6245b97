"""Registration in the store: cluster id, broker id, broker registration, controller election."""

import asyncio
import contextlib
import logging
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration
from tidelog.cluster.znodes import ClusterNode
from tidelog.runtime.clock import Clock
from tidelog.runtime.randomness import Randomness
from tidelog.store.interface import BadVersion, Create, Node, NodeExists, Operation, Set, Store
from tidelog.types import BrokerId, uuid_text

logger = logging.getLogger(__name__)

FIRST_CONTROLLER_EPOCH = 1


REGISTRATION_PAUSE_S = 0.1
OLD_SESSION_WAIT_FACTOR = 1.5
"""How long to wait for the end of an earlier session, as a multiple of the session timeout."""


class BrokerIdInUse(Exception):
    """Another broker of the cluster is registered under this id."""

    def __init__(self, broker_id: BrokerId) -> None:
        super().__init__(f"another broker with id {broker_id} is running in this cluster")


class ControllerFence(NamedTuple):
    """Controller epoch and the version of its node. Every controller write checks it and fails after the term (R31)."""

    epoch: int
    epoch_version: int


async def prepare_store(store: Store) -> None:
    """Create the top-level nodes."""
    nodes = await store.get_many(znodes.PERSISTENT_PATHS)
    missing = [path for path, node in zip(znodes.PERSISTENT_PATHS, nodes, strict=True) if node is None]
    if not missing:
        return
    try:
        await store.multi([Create(path) for path in missing])
    except NodeExists:  # another broker creates the same nodes
        for path in missing:
            with contextlib.suppress(NodeExists):
                await store.create(path)


async def find_cluster_id(
    store: Store, randomness: Randomness, wanted: str | None = None, broker_id: BrokerId | None = None
) -> str:
    """The cluster id. The first broker sets it: `wanted` if its log directories have one, else a new one.

    `broker_id` is recorded with an id that was there before: this store replaces a lost one, and is not taken for a new
    one before that broker has published its inventory (R44).
    """
    existing = await store.exists(znodes.CLUSTER_ID)
    if existing is None:
        node = ClusterNode(wanted or uuid_text(randomness.bytes(16)), restored_by=broker_id if wanted else None)
        with contextlib.suppress(NodeExists):
            await store.create(znodes.CLUSTER_ID, znodes.encode_cluster(node))
        existing = await store.get(znodes.CLUSTER_ID)
    return znodes.decode_cluster_id(existing.data)


async def generate_broker_id(store: Store, reserved_broker_max_id: int) -> BrokerId:
    """An unused broker id: the version of a sequence node, which every call increments."""
    node = await store.set(znodes.BROKER_SEQUENCE, b"")
    return reserved_broker_max_id + node.version


async def wait_for_free_id(store: Store, broker_id: BrokerId, clock: Clock, session_timeout_ms: int) -> None:
    """Wait while the session of an earlier process of this broker has not expired."""
    deadline = clock.monotonic() + session_timeout_ms / 1000 * OLD_SESSION_WAIT_FACTOR
    is_logged = False
    while await store.exists(znodes.broker_path(broker_id)) is not None:
        if clock.monotonic() >= deadline:
            raise BrokerIdInUse(broker_id)
        if not is_logged:
            is_logged = True
            logger.info("waiting for session of earlier process to expire broker_id=%d", broker_id)
        await asyncio.sleep(REGISTRATION_PAUSE_S)


async def register_broker(store: Store, broker: BrokerRegistration, clock: Clock) -> BrokerRegistration:
    """Create the broker's ephemeral node. Returns the broker with its epoch (R39).

    The node exists already if the connection was lost before an earlier attempt was answered. The same transaction
    writes the nodes of the log directories: they record the first and the last epoch with a directory (R42).
    """
    path = znodes.broker_path(broker.id)
    registration = Create(path, znodes.encode_broker(broker, clock.now_ms()), ephemeral=True)
    with contextlib.suppress(NodeExists):
        await store.multi([registration, *await _log_directory_writes(store, broker)])
    node = await store.exists(path)
    if node is None or node.ephemeral_owner != store.session_id:
        raise BrokerIdInUse(broker.id)
    return znodes.decode_broker(broker.id, node.data, epoch=node.created_id)


async def _log_directory_writes(store: Store, broker: BrokerRegistration) -> list[Operation]:
    parent = znodes.log_directories_path(broker.id)
    paths = [znodes.log_directory_path(broker.id, each) for each in broker.directory_ids]
    if not paths:
        return []
    registered, *nodes = await store.get_many([parent, *paths])
    # A broker without such a node is new or was upgraded. If it was upgraded, it always had these directories.
    data = znodes.encode_log_directory(is_from_the_beginning=registered is None)
    operations: list[Operation] = [
        Create(path, data) if node is None else Set(path, _renewed(node, path), node.version)
        for path, node in zip(paths, nodes, strict=True)
    ]
    if registered is None:
        return [Create(parent), *operations]
    if registered.data == znodes.UNREGISTERED_BROKER:
        return [Set(parent, b"", registered.version), *operations]
    return operations


def _renewed(node: Node, path: str) -> bytes:
    try:
        epochs = znodes.decode_log_directory(node.data, path, node.created_id, node.modified_id)
    except znodes.MalformedNode:
        return node.data
    return znodes.encode_log_directory(is_from_the_beginning=epochs.first == znodes.FROM_THE_BEGINNING)


async def claim_controller(store: Store, broker_id: BrokerId, clock: Clock) -> ControllerFence | None:
    """Create /controller and increment the epoch in one transaction; None if another broker is the controller."""
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
