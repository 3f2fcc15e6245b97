"""Nonsense in the coordination store is passed over, and everything else goes on, also after a failover."""

import asyncio
import json

import pytest

from tests.simulation.scenario import create_topic, is_leading, produce, simulate, stored, wait_for
from tidelog.cluster import znodes
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.store.interface import NodeExists
from tidelog.store.memory import MemoryStore

HURT = "hurt"
STATE = {"controller_epoch": 1, "leader": 2, "version": 1, "leader_epoch": 4, "isr": [2, 3]}
REGISTRATION = {"listener_security_protocol_map": {"X": "Y"}, "endpoints": ["X://h:1"], "version": 5}

PLACES: list[tuple[str, object]] = [
    *[(znodes.state_path(HURT, 0), data) for data in ({}, {**STATE, "isr": [3]}, {**STATE, "leader_epoch": 2**31 - 1})],
    (znodes.state_path(HURT, 0), {**STATE, "isr": []}),
    (znodes.state_path(HURT, 0), {**STATE, "leader": 77, "isr": [77]}),
    *[
        (znodes.topic_path(HURT), {"version": 3, "partitions": partitions, "adding_replicas": adding})
        for partitions, adding in (([], {}), ({"0": ["x"]}, {}), ({"0": []}, {}), ({"7": [1]}, {}), ({"0": [1, 2]}, []))
    ],
    (znodes.topic_path("new but broken"), {"version": 3, "partitions": {"0": [1, 2]}}),
    (znodes.topic_path("x" * 300), {"version": 3, "partitions": {"0": [1, 2]}, "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}),
    (znodes.broker_path(7), REGISTRATION),
    ("/brokers/ids/nobody", REGISTRATION),
    (f"/brokers/ids/{10**12}", REGISTRATION),
    (znodes.topic_config_path(HURT), {"config": []}),
    (znodes.topic_config_path(HURT), {"config": {"min.insync.replicas": "many"}}),
    (znodes.broker_config_path("<default>"), {"config": 5}),
    (znodes.broker_config_path("2"), {"config": {"num.replica.fetchers": "-3"}}),
    (znodes.group_config_path("readers"), {"config": 5}),
    (znodes.group_config_path("readers"), {"config": {"consumer.session.timeout.ms": "many"}}),
    (f"{znodes.GROUP_CONFIGS}/%FF%2", {"config": {}}),
    *[(f"{znodes.CONFIG_CHANGE_PREFIX}0000000099", entity) for entity in ({}, {"version": 2, "entity_path": "topics"})],
    (f"{znodes.CONFIG_CHANGES}/nonsense", {}),
    (f"{znodes.IN_SYNC_CHANGE_PREFIX}0000000001", {"partitions": 3}),
    (f"{znodes.IN_SYNC_CHANGES}/nonsense", {"partitions": [{"topic": HURT, "partition": -1}]}),
    (f"{znodes.LOG_DIRECTORY_EVENT_PREFIX}0000000001", {"broker": "one"}),
    (f"{znodes.DELETE_TOPICS}/unheard of", {}),
    (znodes.PREFERRED_REPLICA_ELECTION, {"partitions": [{"topic": HURT, "partition": 10**12}]}),
    (znodes.REASSIGN_PARTITIONS, {"partitions": "all"}),
]


async def write(cluster: SimulatedCluster, path: str, data: bytes) -> None:
    store = MemoryStore(cluster.store_state)
    try:
        await store.create(path, data)
    except NodeExists:
        await store.set(path, data)
    await store.close()


def check_life_goes_on(path: str, data: bytes) -> None:
    """The nonsense is met by the controller, by its successor, by all brokers, and by one that starts."""

    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, (2, 3, 1), name=HURT)
        await create_topic(cluster, (1, 2, 3))
        await write(cluster, path, data)
        await asyncio.sleep(2)
        assert await produce(cluster, b"before") == 0
        cluster.kill(1)
        await wait_for(lambda: stored(cluster).leader in (2, 3))
        assert await produce(cluster, b"after") == 1
        await cluster.start(1)
        await create_topic(cluster, (3, 1, 2), name="later")
        assert await produce(cluster, b"new", topic="later") == 0
        await wait_for(lambda: set(stored(cluster).in_sync_replicas) == {1, 2, 3})
        assert is_leading(cluster, stored(cluster).leader)

    simulate(scenario)


@pytest.mark.parametrize(("path", "content"), PLACES)
def test_nonsense_in_one_node_does_not_stop_the_others(path: str, content: object) -> None:
    check_life_goes_on(path, json.dumps(content).encode())


@pytest.mark.parametrize("path", sorted({path for path, _ in PLACES}))
@pytest.mark.parametrize("data", [b"\xff\xfe", b"[]"])
def test_what_is_no_json_object_does_not_stop_the_others(path: str, data: bytes) -> None:
    check_life_goes_on(path, data)
