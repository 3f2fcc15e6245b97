"""Members of the cluster: every broker that ever registered, until it is unregistered (`UnregisterBroker`).

A broker that is down stays a member: topics can be created while it is down, and it gets its replicas when it returns.
A member has a node for its log directories, which the broker creates with its first registration.
"""

import logging

from tidelog.cluster import znodes
from tidelog.cluster.image import ClusterImage
from tidelog.controller.registration import ControllerFence
from tidelog.errors import BrokerIdNotRegistered, InvalidRequest, NotController
from tidelog.store.interface import BadVersion, Check, Create, Delete, Node, NodeExists, NoNode, Operation, Set, Store
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

NAMED_TOPICS = 3


async def absent_members(store: Store, image: ClusterImage) -> list[BrokerId]:
    """Members that are down, by id."""
    names = await store.children(znodes.LOG_DIRECTORIES)
    absent = sorted({int(name) for name in names if name.isdecimal()} - image.brokers.keys())
    nodes = await store.get_many([znodes.log_directories_path(each) for each in absent])
    return [each for each, node in zip(absent, nodes, strict=True) if _is_member(node)]


def _is_member(node: Node | None) -> bool:
    return node is not None and node.data != znodes.UNREGISTERED_BROKER


async def unregister_member(store: Store, fence: ControllerFence, image: ClusterImage, broker_id: BrokerId) -> None:
    """Forget a broker that is gone for good. Refused while it lives, or while replicas are assigned to it.

    A broker without replicas is in no ISR: if it comes back after all, it joins as a new broker.
    """
    if broker_id in image.brokers:
        raise InvalidRequest(f"Broker {broker_id} is running. Stop it before you unregister it.")
    assigned = sorted(
        name for name, topic in image.topics.items() if any(broker_id in each.replicas for each in topic.partitions)
    )
    if assigned:
        named = ", ".join(assigned[:NAMED_TOPICS]) + (", ..." if len(assigned) > NAMED_TOPICS else "")
        raise InvalidRequest(
            f"Broker {broker_id} has replicas of {len(assigned)} topic(s) ({named})."
            " Move them to other brokers, or delete the topics, before you unregister it."
        )
    parent, registration = znodes.log_directories_path(broker_id), znodes.broker_path(broker_id)
    node = await store.exists(parent)
    if node is None or node.data == znodes.UNREGISTERED_BROKER:
        raise BrokerIdNotRegistered(f"Broker ID {broker_id} is not currently registered")
    directories = await store.children(parent)
    operations: list[Operation] = [
        Check(znodes.CONTROLLER_EPOCH, fence.epoch_version),
        Create(registration),  # fails if the broker registered in the meantime
        Delete(registration),
        *(Delete(znodes.log_directory_path(broker_id, each)) for each in directories),
        # The node stays: brokers recognise this store by its version (R44).
        Set(parent, znodes.UNREGISTERED_BROKER, node.version),
    ]
    try:
        await store.multi(operations)
    except NodeExists:
        raise InvalidRequest(f"Broker {broker_id} has just started. Stop it before you unregister it.") from None
    except (NoNode, BadVersion) as error:
        raise NotController("the broker or the controller has changed in the meantime: try again") from error
    logger.info("unregistered broker broker_id=%d", broker_id)
