"""Waits at the end of a start: for the takeover of an empty store, and for the first requests of the controller."""

import asyncio
import logging

from tidelog.controller.context_loading import load_image
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.runtime.clock import Clock
from tidelog.server.cluster_state import ClusterState
from tidelog.server.membership import Membership
from tidelog.server.takeover import StoreEntry
from tidelog.types import BrokerId, TopicPartition

logger = logging.getLogger(__name__)

CONTROLLER_WAIT_S = 10.0
"""Maximum wait at startup for the first requests of a controller. After it the broker serves and logs a warning."""


async def wait_for_takeover(entry: StoreEntry, membership: Membership, cluster: ClusterState) -> None:
    """Wait until a takeover has filled an empty store, then load the image again."""
    if not entry.is_in_use:
        await entry.wait_until_in_use(lambda: membership.store, cluster.static_settings.takeover_wait_ms)
        cluster.apply(await load_image(membership.store))


async def wait_for_controller(
    broker_id: BrokerId, replicas: ReplicaManager, cluster: ClusterState, clock: Clock
) -> None:
    """Wait for UpdateMetadata and for LeaderAndIsr of all partitions hosted here."""
    roles_changed = asyncio.Event()

    def on_roles(*_: object) -> None:
        roles_changed.set()

    replicas.on_leadership_change.append(on_roles)
    deadline = clock.monotonic() + CONTROLLER_WAIT_S
    is_ready = await cluster.wait_until(
        lambda image: broker_id in image.brokers and replicas.controller_epoch > 0, CONTROLLER_WAIT_S
    )
    while is_ready and not _has_its_partitions(broker_id, replicas, cluster):
        roles_changed.clear()
        is_ready = await _is_set(roles_changed, deadline - clock.monotonic())
    replicas.on_leadership_change.remove(on_roles)
    if not is_ready:
        logger.warning("no requests of a controller yet, serving anyway broker_id=%d", broker_id)


def _has_its_partitions(broker_id: BrokerId, replicas: ReplicaManager, cluster: ClusterState) -> bool:
    return all(
        replicas.is_hosted(TopicPartition(topic.name, partition.index))
        for topic in cluster.image.topics.values()
        for partition in topic.partitions
        if broker_id in partition.replicas and partition.leader in cluster.image.brokers
    )


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(max(timeout_s, 0)):
            return await event.wait()
    except TimeoutError:
        return False
