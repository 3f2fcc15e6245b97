"""Loading of the controller context from the store, in a constant number of round trips."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tidelog.cluster import znodes
from tidelog.cluster.image import BrokerRegistration, ClusterImage, Topic
from tidelog.cluster.node_names import desanitized
from tidelog.cluster.topic_names import check_topic_name
from tidelog.cluster.znodes import LogDirectoryEpochs
from tidelog.controller.log_directories import LogDirectories
from tidelog.errors import InvalidTopic
from tidelog.store.interface import Node, Watch
from tidelog.types import NO_BROKER, BrokerId

logger = logging.getLogger(__name__)

NEVER_MODIFIED = -1
ALWAYS = LogDirectoryEpochs(znodes.FROM_THE_BEGINNING, znodes.TO_THE_END)
"""Of a log directory whose node is damaged."""


class NodeReader(Protocol):
    """Read operations of a store."""

    async def exists(self, path: str, watch: Watch | None = None) -> Node | None: ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]: ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]: ...


class StoredTopic(NamedTuple):
    topic: Topic
    modified_ids: list[int]
    """By partition, the id of the transaction that wrote its state; NEVER_MODIFIED if there is no state."""


async def load_image(store: NodeReader) -> ClusterImage:
    (cluster_id,) = await store.get_many([znodes.CLUSTER_ID])
    if cluster_id is None:
        raise znodes.MalformedNode(f"{znodes.CLUSTER_ID}: missing")
    controller = await store.exists(znodes.CONTROLLER)
    image = ClusterImage(
        znodes.decode_cluster_id(cluster_id.data),
        brokers=await load_brokers(store),
        controller_id=NO_BROKER if controller is None else controller_in(controller),
        broker_configs=await load_broker_configs(store),
        group_configs=await load_group_configs(store),
    )
    return image.with_topics(*await load_topics(store, await store.children(znodes.TOPICS)))


def controller_in(node: Node) -> BrokerId:
    """Broker named by the /controller node; NO_BROKER if the node is malformed."""
    try:
        return znodes.decode_controller(node.data)
    except znodes.MalformedNode as error:
        logger.warning("malformed controller node, controller unknown reason=%s", error)
        return NO_BROKER


async def load_brokers(store: NodeReader, watch: Watch | None = None) -> dict[BrokerId, BrokerRegistration]:
    """Live brokers by id. The watch fires when brokers register or go."""
    names = await store.children(znodes.BROKER_IDS, watch)
    ids = sorted(int(name) for name in names if name.isdecimal() and int(name) in znodes.INT32)
    nodes = await store.get_many([znodes.broker_path(broker_id) for broker_id in ids])
    found = [_decode_broker(broker_id, node) for broker_id, node in zip(ids, nodes, strict=True) if node is not None]
    return {broker.id: broker for broker in found if broker is not None}


async def load_log_directories(
    store: NodeReader, brokers: Iterable[BrokerRegistration]
) -> dict[BrokerId, LogDirectories]:
    """The log directories of these brokers, also those that they no longer have (R42)."""
    present = await _load_directory_epochs(store, {broker.id: broker.directory_ids for broker in brokers})
    # Where all were there from the beginning, none can replace another: no need to know of others.
    changed = {
        broker_id: found
        for broker_id, found in present.items()
        if any(each.first != znodes.FROM_THE_BEGINNING for each in found.values())
    }
    missing = {
        broker_id: [each for each in await store.children(znodes.log_directories_path(broker_id)) if each not in found]
        for broker_id, found in changed.items()
    }
    known = await _load_directory_epochs(store, missing)
    return {
        broker_id: LogDirectories(
            found, [known.get(broker_id, {}).get(each, ALWAYS) for each in missing.get(broker_id, ())]
        )
        for broker_id, found in present.items()
    }


async def _load_directory_epochs(
    store: NodeReader, named: Mapping[BrokerId, Sequence[str]]
) -> dict[BrokerId, dict[str, LogDirectoryEpochs]]:
    keys = [(broker_id, directory_id) for broker_id, ids in named.items() for directory_id in ids]
    paths = [znodes.log_directory_path(*each) for each in keys]
    found: dict[BrokerId, dict[str, LogDirectoryEpochs]] = {}
    for (broker_id, directory_id), path, node in zip(keys, paths, await store.get_many(paths), strict=True):
        try:
            if node is not None:
                epochs = znodes.decode_log_directory(node.data, path, node.created_id, node.modified_id)
                found.setdefault(broker_id, {})[directory_id] = epochs
        except znodes.MalformedNode as error:
            logger.warning("ignored malformed log directory node reason=%s", error)
    return found


def _decode_broker(broker_id: BrokerId, node: Node) -> BrokerRegistration | None:
    try:
        return znodes.decode_broker(broker_id, node.data, epoch=node.created_id)
    except znodes.MalformedNode:
        logger.exception("ignored broker with malformed registration broker_id=%d", broker_id)
        return None


async def load_broker_configs(store: NodeReader) -> dict[str, dict[str, str]]:
    names = await store.children(znodes.BROKER_CONFIGS)
    paths = [znodes.broker_config_path(name) for name in names]
    nodes = await store.get_many(paths)
    return {
        name: _config_in(node, path) for name, path, node in zip(names, paths, nodes, strict=True) if node is not None
    }


async def load_group_configs(store: NodeReader) -> dict[str, dict[str, str]]:
    names = [desanitized(name) for name in await store.children(znodes.GROUP_CONFIGS)]
    paths = [znodes.group_config_path(name) for name in names]
    nodes = await store.get_many(paths)
    found = {name: _config_in(node, path) for name, path, node in zip(names, paths, nodes, strict=True)}
    return {name: configs for name, configs in found.items() if configs}


async def load_topic_configs(store: NodeReader, names: Sequence[str]) -> dict[str, dict[str, str]]:
    paths = [znodes.topic_config_path(name) for name in names]
    nodes = await store.get_many(paths)
    return {name: _config_in(node, path) for name, path, node in zip(names, paths, nodes, strict=True)}


def _config_in(node: Node | None, path: str) -> dict[str, str]:
    """Settings in the node; none if it is malformed."""
    try:
        return {} if node is None else znodes.decode_config(node.data, path)
    except znodes.MalformedNode as error:
        logger.warning("ignored malformed settings in the store reason=%s", error)
        return {}


async def load_topics(store: NodeReader, names: Sequence[str]) -> list[Topic]:
    """The existing topics among these names."""
    return [stored.topic for stored in await load_stored_topics(store, names)]


async def load_stored_topics(store: NodeReader, names: Sequence[str]) -> list[StoredTopic]:
    """Existing topics with their states. A malformed topic is ignored, so that it does not stop the others."""
    names = list(filter(_is_possible, names))
    nodes = await store.get_many([znodes.topic_path(name) for name in names])
    found = [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]
    configs = await store.get_many([znodes.topic_config_path(name) for name, _ in found])
    counts = [_partition_count(name, node) for name, node in found]
    states = iter(
        await store.get_many(
            [
                znodes.state_path(name, partition)
                for (name, _), count in zip(found, counts, strict=True)
                for partition in range(count)
            ]
        )
    )
    decoded = [
        _decode(name, node, [next(states) for _ in range(count)], config)
        for (name, node), count, config in zip(found, counts, configs, strict=True)
    ]
    return [topic for topic in decoded if topic is not None]


def _is_possible(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopic as error:
        logger.warning("ignored topic with invalid name reason=%s", error)
        return False
    return True


def _partition_count(name: str, node: Node) -> int:
    try:
        return znodes.partition_count(name, node.data)
    except znodes.MalformedNode:
        return 0


def _decode(name: str, node: Node, states: list[Node | None], config: Node | None) -> StoredTopic | None:
    encoded_states = [None if state is None else (state.data, state.version) for state in states]
    try:
        topic = znodes.decode_topic(
            name, node.data, node.version, encoded_states, _config_in(config, znodes.topic_config_path(name))
        )
    except znodes.MalformedNode:
        logger.exception("ignored topic with malformed nodes in the store topic=%s", name)
        return None
    return StoredTopic(topic, [NEVER_MODIFIED if state is None else state.modified_id for state in states])
