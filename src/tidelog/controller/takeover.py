"""Takeover of existing log directories by an empty coordination store (R44).

Every broker that joins a store which is not in use publishes the inventory of its log directories, then registers. The
controller registers the topics found in all inventories, or waits and publishes the reason. No broker serves clients
before that.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from tidelog.cluster import inventory as inventory_nodes
from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, PartitionRegistration, Topic
from tidelog.cluster.inventory import INVENTORIES, Inventory
from tidelog.cluster.znodes import ClusterNode, MalformedNode, ProducerIdBlock, TakeoverState
from tidelog.controller.context_loading import load_brokers
from tidelog.controller.registration import ControllerFence
from tidelog.controller.takeover_plan import PlannedTopic, Problem, TakeoverPlan, plan_takeover
from tidelog.runtime.clock import Clock
from tidelog.store.interface import (
    BadVersion,
    Check,
    Create,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Store,
    StoreUnavailable,
)
from tidelog.types import BrokerId, Uuid

logger = logging.getLogger(__name__)

POLL_S = 0.2
NODES_PER_WRITE = 500
"""ZooKeeper accepts requests of up to 1 MB."""
KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose own settings are lost: no record may be deleted because of that."""


class TakeoverRules(NamedTuple):
    """Inputs of the controller besides the store."""

    clock: Clock
    wait_ms: int
    is_forced: bool
    new_topic_id: Callable[[], Uuid]
    internal_configs: Callable[[str, int], Mapping[str, str] | None]
    """Settings of an internal topic by name and replication factor; None if the topic is not internal."""


class StoreState(NamedTuple):
    node: ClusterNode
    version: int
    is_in_use: bool
    """False for a store that may replace a lost one: it has no topics and was never in use."""


async def read_store_state(store: Store) -> StoreState:
    found = await store.get(znodes.CLUSTER_ID)
    node = znodes.decode_cluster(found.data)
    is_in_use = node.takeover is TakeoverState.DONE
    if node.takeover is TakeoverState.UNKNOWN:
        # Written by Apache Kafka, or by a version without takeover: a store with topics is in use.
        is_in_use = bool(await store.children(znodes.TOPICS))
    return StoreState(node, found.version, is_in_use)


async def has_foreign_controller(store: Store) -> bool:
    """Whether the controller is a broker of Apache Kafka, which takes over no logs: it has published no inventory."""
    node = await store.exists(znodes.CONTROLLER)
    if node is None:
        return False
    try:
        published = inventory_nodes.parts_by_broker(await store.children(INVENTORIES))
    except NoNode:
        published = {}
    if znodes.decode_controller(node.data) in published:
        return False
    # The session of a controller may have ended between the two reads, and its inventory with it.
    return await store.exists(znodes.CONTROLLER) == node


# ---- every broker


async def publish_inventory(store: Store, inventory: Inventory) -> None:
    """Publish the inventory in ephemeral nodes. Called before the broker registers."""
    with suppress(NodeExists):
        await store.create(INVENTORIES)
    for name in await store.children(INVENTORIES):
        if name.startswith(f"{inventory.broker_id}-"):
            with suppress(NoNode):
                await store.delete(f"{INVENTORIES}/{name}")
    parts = inventory_nodes.encode_inventory(inventory)
    for index, part in enumerate(parts):
        name = inventory_nodes.part_name(inventory.broker_id, index, len(parts))
        await store.create(f"{INVENTORIES}/{name}", part, ephemeral=True)
    if inventory.logs:
        logger.warning(
            "coordination store is empty, published inventory of log dirs broker_id=%d partitions=%d",
            inventory.broker_id,
            len(inventory.logs),
        )


async def clear_verdict(store: Store, state: StoreState) -> None:
    """Clear a verdict from before this broker joined. The controller publishes it again if it still holds."""
    if state.node.reason:
        with suppress(BadVersion):
            await store.multi([_in_state(state, TakeoverState.WAITING)])


async def raise_controller_epoch(store: Store, known_epoch: int) -> None:
    """Raise the controller epoch to the one this broker remembers, else it would refuse the controller (R7)."""
    while True:
        node = await store.exists(znodes.CONTROLLER_EPOCH)
        data = znodes.encode_controller_epoch(known_epoch)
        try:
            if node is None:
                await store.create(znodes.CONTROLLER_EPOCH, data)
            elif znodes.decode_controller_epoch(node.data) < known_epoch:
                await store.set(znodes.CONTROLLER_EPOCH, data, node.version)
        except (BadVersion, NodeExists):
            continue
        return


# ---- controller


async def take_over(store: Store, fence: ControllerFence, broker_id: BrokerId, rules: TakeoverRules) -> None:
    """Return when the store is in use. Until then this broker is elected, but its term has not started."""
    state = await read_store_state(store)
    began = rules.clock.monotonic()
    planned_for: dict[BrokerId, BrokerRegistration] | None = None
    while not state.is_in_use:
        brokers = await load_brokers(store)
        if brokers != planned_for:
            # A broker publishes its inventory before it registers: without a new registration the plan stays the same.
            plan, planned_for = await _plan(store, brokers, state.node.restored_by), brokers
        has_waited = rules.clock.monotonic() - began >= rules.wait_ms / 1000
        obstacle = plan.obstacle(is_forced=rules.is_forced, has_waited=has_waited)
        if obstacle is None:
            await _register(store, fence, broker_id, rules, brokers, plan)
            return
        await _publish_verdict(store, fence, state, plan, obstacle)
        await asyncio.sleep(POLL_S)
        state = await read_store_state(store)
    if state.node.takeover is not TakeoverState.DONE:
        await _write(store, fence, [_in_state(state, TakeoverState.DONE)])


async def _plan(
    store: Store, brokers: Mapping[BrokerId, BrokerRegistration], restored_by: BrokerId | None
) -> TakeoverPlan:
    inventories = await _load_inventories(store)
    silent = brokers.keys() - inventories.keys()
    registered = {each: inventories[each] for each in sorted(brokers) if each in inventories}
    return plan_takeover(registered, silent, restored_by)


async def _load_inventories(store: Store) -> dict[BrokerId, Inventory]:
    try:
        names = inventory_nodes.parts_by_broker(await store.children(INVENTORIES))
    except NoNode:
        return {}
    found = {}
    for broker_id, parts in names.items():
        nodes = await store.get_many([f"{INVENTORIES}/{name}" for name in parts])
        if all(nodes):
            found[broker_id] = inventory_nodes.decode_inventory([node.data for node in nodes if node is not None])
    return found


async def _publish_verdict(
    store: Store, fence: ControllerFence, state: StoreState, plan: TakeoverPlan, problem: Problem
) -> None:
    """Write the reason to the store, where all brokers and operators read it."""
    reason = (
        f"the coordination store is empty, while the log directories of the running brokers hold {plan.found},"
        f" and {problem.sentence}"
    )
    verdict = TakeoverState.WAITING if problem.may_pass else TakeoverState.REJECTED
    if (state.node.takeover, state.node.reason) != (verdict, reason):
        logger.log(logging.INFO if problem.may_pass else logging.WARNING, "takeover %s: %s", verdict.value, reason)
        await _write(store, fence, [_in_state(state, verdict, reason)])
    else:
        await _write(store, fence, [])


def _in_state(state: StoreState, takeover: TakeoverState, reason: str = "") -> Set:
    data = znodes.encode_cluster(state.node._replace(takeover=takeover, reason=reason))
    return Set(znodes.CLUSTER_ID, data, state.version)


async def _write(store: Store, fence: ControllerFence, operations: Sequence[Operation]) -> None:
    """Write fenced by the controller epoch, which a broker that remembers a higher one raises (R31)."""
    try:
        await store.multi([Check(znodes.CONTROLLER_EPOCH, fence.epoch_version), *operations])
    except BadVersion as error:
        raise StoreUnavailable(reason="the controller epoch or the state of the takeover has changed") from error


# ---- registration of topics


async def _register(
    store: Store,
    fence: ControllerFence,
    broker_id: BrokerId,
    rules: TakeoverRules,
    brokers: Mapping[BrokerId, BrokerRegistration],
    plan: TakeoverPlan,
) -> None:
    state = await read_store_state(store)
    if plan.topics:
        for problem in plan.problems:
            logger.warning("takeover continues because unclean.takeover.enable is set, although %s", problem.sentence)
        await _write(store, fence, [_in_state(state, TakeoverState.REGISTERING)])
        epochs = {broker.id: broker.epoch for broker in brokers.values()}
        topics = [_topic(planned, fence, epochs, rules) for planned in plan.topics]
        await _put_nodes(store, fence, _settings_of(plan) + [node for each in topics for node in _nodes_of(each)])
        state = await read_store_state(store)
    await _write(store, fence, [*await _producer_ids(store, broker_id, plan), _in_state(state, TakeoverState.DONE)])
    if plan.topics:
        _log_takeover(plan)


def _log_takeover(plan: TakeoverPlan) -> None:
    logger.warning(
        "took over the log dirs of all brokers, because the coordination store was empty"
        " topics=%d partitions=%d last_producer_id=%d",
        len(plan.topics),
        sum(len(topic.partitions) for topic in plan.topics),
        plan.last_producer_id,
    )
    unknown = [topic.name for topic in plan.topics if topic.configs is None]
    if unknown:
        logger.warning(
            "settings of topics were lost with the coordination store: they keep all records until you set"
            " retention.ms and retention.bytes topics=%s",
            ",".join(unknown),
        )


def _topic(
    planned: PlannedTopic, fence: ControllerFence, epochs: Mapping[BrokerId, int], rules: TakeoverRules
) -> Topic:
    replication_factor = max(len(each.replicas) for each in planned.partitions)
    configs = planned.configs
    if configs is None:
        configs = rules.internal_configs(planned.name, replication_factor)
    return Topic(
        planned.name,
        planned.topic_id or rules.new_topic_id(),
        tuple(
            PartitionRegistration(
                index=each.index,
                replicas=each.replicas,
                leader=each.replicas[0],
                leader_epoch=each.leader_epoch,
                in_sync_replicas=each.in_sync_replicas,
                controller_epoch=fence.epoch,
                in_sync_epochs={member: epochs[member] for member in each.in_sync_replicas},
            )
            for each in planned.partitions
        ),
        KEEP_ALL if configs is None else configs,
    )


async def _put_nodes(store: Store, fence: ControllerFence, nodes: Sequence[tuple[str, bytes]]) -> None:
    """Overwrite what an earlier controller registered: no broker has used it yet."""
    for start in range(0, len(nodes), NODES_PER_WRITE):
        part = nodes[start : start + NODES_PER_WRITE]
        found = await store.get_many([path for path, _ in part])
        await _write(
            store,
            fence,
            [
                Create(path, data) if node is None else Set(path, data, node.version)
                for (path, data), node in zip(part, found, strict=True)
            ],
        )


def _settings_of(plan: TakeoverPlan) -> list[tuple[str, bytes]]:
    """Dynamic settings: first of all, since retention may depend on them."""
    paths = [
        *((znodes.broker_config_path(name), configs) for name, configs in sorted(plan.broker_configs.items())),
        *((znodes.group_config_path(name), configs) for name, configs in sorted(plan.group_configs.items())),
    ]
    settings = [(path, znodes.encode_config(configs)) for path, configs in paths]
    return settings + _with_parents(plan.security_nodes)


def _with_parents(nodes: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """In the order of creation. Parents that are not among the nodes have no content."""
    found: dict[str, bytes] = {}
    for path, content in sorted(nodes.items()):
        parts = path.split("/")
        for count in range(2, len(parts)):
            found.setdefault("/".join(parts[:count]), b"")
        found[path] = content.encode()
    return list(found.items())


def _nodes_of(topic: Topic) -> list[tuple[str, bytes]]:
    """Parents first. Settings before the topic: a broker that starts meanwhile would keep records by its own ones."""
    nodes = [
        (znodes.topic_config_path(topic.name), znodes.encode_config(topic.configs)),
        (znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions)),
        (znodes.partitions_path(topic.name), b""),
    ]
    for partition in topic.partitions:
        nodes.append((znodes.partition_path(topic.name, partition.index), b""))
        nodes.append((znodes.state_path(topic.name, partition.index), znodes.encode_state(partition)))
    return nodes


async def _producer_ids(store: Store, broker_id: BrokerId, plan: TakeoverPlan) -> list[Operation]:
    """The next producer id block starts above every id that may be in use."""
    if plan.last_producer_id < 0:
        return []
    node = await store.get(znodes.PRODUCER_ID_BLOCK)
    block = ProducerIdBlock(broker_id, 0, plan.last_producer_id)
    return [Set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), node.version)]


async def delete_inventory(store: Store, broker_id: BrokerId) -> None:
    """Delete the broker's inventory after the takeover."""
    with suppress(NoNode, MalformedNode):
        for name in await store.children(INVENTORIES):
            if name.startswith(f"{broker_id}-"):
                with suppress(NoNode):
                    await store.delete(f"{INVENTORIES}/{name}")
