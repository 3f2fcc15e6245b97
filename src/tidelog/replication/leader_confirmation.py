"""Confirmation of leadership: a leader asks the store before it gives an answer that a client takes for final.

A leader that is cut off from the controller may have a successor that it does not know. It cannot commit anything, so
it acknowledges nothing. But it also lacks what its successor has written: a batch that continues those records is out
of order here, and an offset in them out of range. A producer would give the batch up, a consumer would start elsewhere.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

from tidelog.cluster.image import PartitionRegistration
from tidelog.cluster.znodes import MalformedNode, decode_state, state_path
from tidelog.replication.leader import PartitionLeader
from tidelog.replication.partition import Partition
from tidelog.runtime.deferred import Deferred
from tidelog.store.interface import Node, Store, StoreError

MAX_STATES_PER_READ = 500


def suspend_superseded(partition: Partition, leader: PartitionLeader, found: PartitionRegistration) -> None:
    """Stop leading if the store has a later leader: the controller's request is still on its way (R20).

    Epochs are compared, because a lagging server of a ZooKeeper ensemble may return an older state where no `sync`
    came before.
    """
    if found.leader != leader.broker_id and found.leader_epoch > leader.leader_epoch:
        leader.on_lost()
        if partition.role is leader:
            partition.suspend()


class LeaderConfirmation:
    """One read of the store at a time, so that clients cannot flood it. All questions that wait share the next read."""

    def __init__(self, store: Callable[[], Store], now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._waiting: dict[Partition, list[Deferred[bool]]] = {}
        self._has_waiting = asyncio.Event()

    def ask(self, partition: Partition) -> Deferred[bool]:
        """Whether this broker leads the partition, according to the store. False if the store cannot be read."""
        answer: Deferred[bool] = Deferred()
        self._waiting.setdefault(partition, []).append(answer)
        self._has_waiting.set()
        return answer

    def is_recent(self, partition: Partition, max_age_ms: int) -> bool:
        """Whether the store has confirmed the leadership in the last `max_age_ms`."""
        leader = partition.leader
        return leader is not None and self._now_ms() - leader.confirmed_ms <= max_age_ms

    async def ask_all(self, partitions: Iterable[Partition]) -> list[bool]:
        """`ask` for each partition, all in one step."""
        answers = [self.ask(partition) for partition in partitions]
        return [await answer.wait() for answer in answers]

    async def run(self) -> None:
        """Answer questions until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            while self._waiting:
                asked = {each: self._waiting.pop(each) for each in list(islice(self._waiting, MAX_STATES_PER_READ))}
                confirmed = await self._confirmed(asked)
                for partition, answers in asked.items():
                    for answer in answers:
                        if not answer.is_completed:
                            answer.resolve(partition in confirmed)

    async def _confirmed(self, partitions: Iterable[Partition]) -> set[Partition]:
        """Those that this broker leads, according to the store."""
        leaders = [(each, each.leader) for each in partitions if each.leader is not None]
        asked_ms = self._now_ms()
        store = self._store()
        try:
            await store.sync()
            nodes = await store.get_many([state_path(*each.topic_partition) for each, _ in leaders])
        except StoreError:
            return set()
        return {
            partition
            for (partition, leader), node in zip(leaders, nodes, strict=True)
            if node is not None and _confirm(partition, leader, node, asked_ms)
        }


def _confirm(partition: Partition, leader: PartitionLeader, node: Node, asked_ms: int) -> bool:
    topic, index = partition.topic_partition
    own = PartitionRegistration(index, partition.replicas, leader.broker_id, leader.leader_epoch, ())
    try:
        found = decode_state(topic, own, node.data, node.version)
    except MalformedNode:
        return False
    suspend_superseded(partition, leader, found)
    if (found.leader, found.leader_epoch) != (own.leader, own.leader_epoch) or partition.leader is not leader:
        return False
    leader.confirmed_ms = asked_ms
    return True
