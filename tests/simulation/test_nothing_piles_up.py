"""Repeated events leave nothing behind in a cluster: no task, timer, watch, session or connection."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from tests.simulation.scenario import ask, create_topic, produce, simulate
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.runtime.virtual_time import VirtualTimeLoop
from tidelog.server.broker import Broker
from tidelog.server.fetch_sessions import EVICTION_S
from tidelog.simulation.cluster import SESSION_TIMEOUT_MS, SimulatedCluster
from tidelog.store.memory import MemoryStore

SESSION_TIMEOUT_S = SESSION_TIMEOUT_MS / 1000
SETTLED_S = 5.0

Round: TypeAlias = Callable[[SimulatedCluster, int], Awaitable[None]]


async def create_and_delete_a_topic(cluster: SimulatedCluster, number: int) -> None:
    name = f"topic-{number}"
    await create_topic(cluster, (1, 2, 3), (2, 3, 1), name=name, retention_ms=number + 1000)
    await produce(cluster, b"x", topic=name)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
    (deleted,) = (await ask(cluster, 1 + number % 3, request, DeleteTopicsResponse)).responses
    assert deleted.error_code == 0


async def end_a_session(cluster: SimulatedCluster, number: int) -> None:
    cluster.store_state.expire(cluster.machines[1 + number % 3].sessions[-1])
    await asyncio.sleep(SETTLED_S)


async def lose_the_store_for_a_while(cluster: SimulatedCluster, number: int) -> None:
    cluster.cut_off_from_store(1 + number % 3)
    await asyncio.sleep(SESSION_TIMEOUT_S * (0.95 if number % 2 else 2))
    cluster.reconnect_to_store(1 + number % 3)
    await asyncio.sleep(SETTLED_S)


async def lose_the_peers_for_a_while(cluster: SimulatedCluster, number: int) -> None:
    cluster.cut_off_from_peers(1 + number % 3)
    await asyncio.sleep(40)
    cluster.mend()
    await asyncio.sleep(SETTLED_S)


async def restart_a_broker(cluster: SimulatedCluster, number: int) -> None:
    await cluster.stop(1 + number % 3)
    await asyncio.sleep(SETTLED_S)
    await cluster.start(1 + number % 3)
    await asyncio.sleep(SETTLED_S)


def inside(broker: Broker) -> dict[str, int]:
    """What could pile up in one broker."""
    services, store = broker._services, broker._membership.store
    assert isinstance(store, MemoryStore)
    watchers = [each for partition in broker.replicas for each in (partition.watchers, partition.end_watchers)]
    return {
        "background tasks": len(broker._background) + len(services._tasks),
        "waiting operations": services.purgatory.size,
        "observers": sum(len(each.observers) for each in watchers),
        "topics without an image": len(services.cluster.early_topics) + len(services.cluster._early_configs),
        "waiters for an image": len(services.cluster._waiters),
        "logs": len(list(broker.replicas)),
        "fetchers": len(broker.fetchers._fetchers),
        "callbacks": len(store._suspended_callbacks) + len(store._session_end_callbacks),
    }


async def census(cluster: SimulatedCluster) -> dict[str, int]:
    """The last part: once new fetch sessions have swept those that were left behind."""
    await asyncio.sleep(EVICTION_S + 1)
    watches = sum(len(list(each.watches.watched())) for each in cluster.store_state.sessions.values())
    for broker_id in cluster.machines:
        cluster.store_state.expire(cluster.machines[broker_id].sessions[-1])
        await asyncio.sleep(SETTLED_S)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return {
        "tasks": len(asyncio.all_tasks()),
        "timers": loop.pending_timers,
        "sessions with the store": len(cluster.store_state.sessions),
        "nodes": len([path for path in cluster.store_state.nodes if "/config" not in path]),
        "watches": watches,
        "fetch sessions": sum(broker._services.fetch_sessions.statistics().sessions for broker in cluster.running),
        **{
            f"{name} of broker {broker.broker_id}": count
            for broker in cluster.running
            for name, count in inside(broker).items()
        },
    }


@pytest.mark.parametrize(
    "round_",
    [
        create_and_delete_a_topic,
        end_a_session,
        lose_the_store_for_a_while,
        lose_the_peers_for_a_while,
        restart_a_broker,
    ],
)
def test_nothing_piles_up(round_: Round) -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await create_topic(cluster, (1, 2, 3), (2, 3, 1), (3, 1, 2))
        counts = []
        for start, end in ((0, 6), (6, 24)):
            for number in range(start, end):
                await round_(cluster, number)
                await produce(cluster, b"%d" % number)
            counts.append(await census(cluster))
        grown = {name: (before, counts[1][name]) for name, before in counts[0].items() if counts[1][name] > before}
        assert not grown

    simulate(scenario)
