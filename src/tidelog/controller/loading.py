"""The cluster's image as the store has it, read in a few round trips however many topics there are."""

from collections.abc import Sequence

from tidelog.cluster import znodes
from tidelog.cluster.image import Broker, ClusterImage, Topic
from tidelog.store.interface import Node, Store
from tidelog.types import NO_BROKER, BrokerId


async def load_image(store: Store) -> ClusterImage:
    cluster_id = znodes.decode_cluster_id((await store.get(znodes.CLUSTER_ID)).data)
    controller = await store.exists(znodes.CONTROLLER)
    image = ClusterImage(
        cluster_id,
        brokers=await load_brokers(store),
        controller_id=NO_BROKER if controller is None else znodes.decode_controller(controller.data),
        broker_configs=await load_broker_configs(store),
    )
    return image.with_topics(*await load_topics(store, await store.children(znodes.TOPICS)))


async def load_brokers(store: Store) -> dict[BrokerId, Broker]:
    ids = [int(name) for name in await store.children(znodes.BROKER_IDS)]
    nodes = await store.get_many([znodes.broker_path(broker_id) for broker_id in ids])
    return {
        broker_id: znodes.decode_broker(broker_id, node.data, epoch=node.created_id)
        for broker_id, node in sorted(zip(ids, nodes, strict=True))
        if node is not None
    }


async def load_broker_configs(store: Store) -> dict[str, dict[str, str]]:
    names = await store.children(znodes.BROKER_CONFIGS)
    paths = [znodes.broker_config_path(name) for name in names]
    nodes = await store.get_many(paths)
    return {
        name: znodes.decode_config(node.data, path)
        for name, path, node in zip(names, paths, nodes, strict=True)
        if node is not None
    }


async def load_topics(store: Store, names: Sequence[str]) -> list[Topic]:
    """The topics of these names that exist."""
    nodes = await store.get_many([znodes.topic_path(name) for name in names])
    found = [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]
    configs = await store.get_many([znodes.topic_config_path(name) for name, _ in found])
    counts = [znodes.partition_count(name, node.data) for name, node in found]
    states = iter(
        await store.get_many(
            [
                znodes.state_path(name, partition)
                for (name, _), count in zip(found, counts, strict=True)
                for partition in range(count)
            ]
        )
    )
    return [
        _decode(name, node, [next(states) for _ in range(count)], config)
        for (name, node), count, config in zip(found, counts, configs, strict=True)
    ]


def _decode(name: str, node: Node, states: list[Node | None], config: Node | None) -> Topic:
    overrides = {} if config is None else znodes.decode_config(config.data, znodes.topic_config_path(name))
    known_states = [None if state is None else (state.data, state.version) for state in states]
    return znodes.decode_topic(name, node.data, node.version, known_states, overrides)
