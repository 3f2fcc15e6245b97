"""Accidents that befall a simulated cluster, drawn from one source of chance, and their repair."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from tidelog.cluster import znodes
from tidelog.runtime.randomness import SeededRandomness
from tidelog.simulation.cluster import DEATH_IS_NOTICED_AFTER_S, SESSION_TIMEOUT_MS, SimulatedCluster
from tidelog.simulation.looking import registered_epoch, stored_partitions
from tidelog.types import NO_BROKER, BrokerId

NOTICED_AFTER_S = (DEATH_IS_NOTICED_AFTER_S, DEATH_IS_NOTICED_AFTER_S, 1.0, SESSION_TIMEOUT_MS / 1000)
LOOK_S = 0.01
LONGEST_UNNOTICED_S = 30.0


class Trouble(Enum):
    NONE = auto()
    DOWN = auto()
    CHANGING = auto()  # is starting, or stopping in an orderly way
    FROZEN = auto()
    WITHOUT_STORE = auto()


class Accidents:
    """Each method does one thing if it can be done now, and tells it to `tell`."""

    def __init__(self, cluster: SimulatedCluster, randomness: SeededRandomness, tell: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._randomness = randomness
        self._tell = tell
        self.troubles = dict.fromkeys(cluster.machines, Trouble.NONE)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self.failures: list[str] = []
        self._harms: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._kill_all,
            self._stop,
            self._freeze,
            self._cut_off_from_store,
            self._cut_link,
            self._cut_off_from_peers,
            self._cut_off_and_kill,
            self._cut_off_from_clients,
            self._kill_while_starting,
        ]
        self._are_links_whole = True

    async def next(self) -> None:
        """One accident, or one repair: the more is broken the likelier."""
        broken = sum(trouble is not Trouble.NONE for trouble in self.troubles.values())
        broken += not self._are_links_whole
        if self._randomness.below(5) < broken:
            self._repair_something()
        elif self._randomness.below(6) == 0:
            await self._lose_a_disk()
        else:
            self._harms[self._randomness.below(len(self._harms))]()

    def _repair_something(self) -> None:
        broken: list[Callable[[], None]] = [] if self._are_links_whole else [self._mend]
        for trouble, repair in (
            (Trouble.DOWN, self._start),
            (Trouble.FROZEN, self._thaw),
            (Trouble.WITHOUT_STORE, self._reconnect),
        ):
            broken += [repair] * list(self.troubles.values()).count(trouble)
        if broken:
            broken[self._randomness.below(len(broken))]()

    def repair_all(self) -> None:
        self._tell("all is repaired")
        self._mend()
        for broker_id, trouble in self.troubles.items():
            self._repair(broker_id, trouble)

    def repair_late(self) -> None:
        """What was still happening when all was repaired."""
        if not self._are_links_whole:
            self._mend()
        for broker_id, trouble in self.troubles.items():
            if trouble is Trouble.DOWN:
                self._repair(broker_id, trouble)

    def _repair(self, broker_id: BrokerId, trouble: Trouble) -> None:
        match trouble:
            case Trouble.DOWN:
                self.troubles[broker_id] = Trouble.CHANGING
                self._begin(self._starting(broker_id))
            case Trouble.FROZEN:
                self._cluster.thaw(broker_id)
                self.troubles[broker_id] = Trouble.NONE
            case Trouble.WITHOUT_STORE:
                self._cluster.reconnect_to_store(broker_id)
                self.troubles[broker_id] = Trouble.NONE
            case _:
                pass

    @property
    def is_all_well(self) -> bool:
        return all(trouble is Trouble.NONE for trouble in self.troubles.values())

    # -- drawing

    def _one_of(self, *troubles: Trouble) -> BrokerId | None:
        """Every other time whoever leads the first partition, where most depends on it."""
        found = [broker_id for broker_id, trouble in self.troubles.items() if trouble in troubles]
        leader = self._leader()
        if leader in found and self._randomness.below(2):
            return leader
        return found[self._randomness.below(len(found))] if found else None

    def _leader(self) -> BrokerId:
        _, stored = next(stored_partitions(self._cluster.store_state), (None, None))
        return NO_BROKER if stored is None else stored.state.leader

    def _noticed_after_s(self) -> float:
        return NOTICED_AFTER_S[self._randomness.below(len(NOTICED_AFTER_S))]

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(f"a broker could not start or stop: {task.exception()!r}")

    # -- processes

    def _kill(self) -> None:
        broker_id = self._one_of(Trouble.NONE, Trouble.NONE, Trouble.FROZEN, Trouble.WITHOUT_STORE)
        if broker_id is not None:
            self._kill_one(broker_id, self._noticed_after_s())

    def _kill_one(self, broker_id: BrokerId, noticed_after_s: float) -> None:
        self._tell(f"kill -9 broker {broker_id}, noticed after {noticed_after_s} s")
        self._cluster.kill(broker_id, noticed_after_s=noticed_after_s)
        self.troubles[broker_id] = Trouble.DOWN

    def _kill_all(self) -> None:
        if self._randomness.below(3):
            return
        noticed_after_s = self._noticed_after_s()
        for broker_id, trouble in self.troubles.items():
            if trouble not in (Trouble.DOWN, Trouble.CHANGING):
                self._kill_one(broker_id, noticed_after_s)

    def _kill_while_starting(self) -> None:
        broker_id = self._one_of(Trouble.DOWN)
        if broker_id is not None:
            self.troubles[broker_id] = Trouble.CHANGING
            self._begin(self._starting_in_vain(broker_id, self._randomness.below(100) / 1000))

    async def _starting_in_vain(self, broker_id: BrokerId, after_s: float) -> None:
        self._tell(f"start broker {broker_id} and kill it after {after_s} s")
        starting = asyncio.ensure_future(self._cluster.start(broker_id))
        await asyncio.wait([starting], timeout=after_s)
        self._cluster.kill(broker_id, noticed_after_s=self._noticed_after_s())
        self.troubles[broker_id] = Trouble.DOWN

    def _start(self) -> None:
        broker_id = self._one_of(Trouble.DOWN)
        if broker_id is not None:
            self._repair(broker_id, Trouble.DOWN)

    async def _starting(self, broker_id: BrokerId) -> None:
        self._tell(f"start broker {broker_id}")
        await self._cluster.start(broker_id)
        self.troubles[broker_id] = Trouble.NONE
        self._tell(f"broker {broker_id} has started")

    def _stop(self) -> None:
        broker_id = self._one_of(Trouble.NONE)
        if broker_id is not None:
            self.troubles[broker_id] = Trouble.CHANGING
            self._begin(self._stopping(broker_id))

    async def _stopping(self, broker_id: BrokerId) -> None:
        self._tell(f"stop broker {broker_id}")
        await self._cluster.stop(broker_id)
        self.troubles[broker_id] = Trouble.DOWN
        self._tell(f"broker {broker_id} has stopped")

    def _freeze(self) -> None:
        broker_id = self._one_of(Trouble.NONE)
        if broker_id is not None:
            self._tell(f"SIGSTOP broker {broker_id}")
            self._cluster.freeze(broker_id)
            self.troubles[broker_id] = Trouble.FROZEN

    def _thaw(self) -> None:
        broker_id = self._one_of(Trouble.FROZEN)
        if broker_id is not None:
            self._tell(f"SIGCONT broker {broker_id}")
            self._repair(broker_id, Trouble.FROZEN)

    # -- links

    def _cut_off_from_store(self) -> None:
        broker_id = self._one_of(Trouble.NONE)
        if broker_id is not None:
            self._tell(f"cut broker {broker_id} off from the store")
            self._cluster.cut_off_from_store(broker_id)
            self.troubles[broker_id] = Trouble.WITHOUT_STORE

    def _reconnect(self) -> None:
        broker_id = self._one_of(Trouble.WITHOUT_STORE)
        if broker_id is not None:
            self._tell(f"broker {broker_id} reaches the store again")
            self._repair(broker_id, Trouble.WITHOUT_STORE)

    def _any(self) -> BrokerId:
        found = self._one_of(*Trouble)
        assert found is not None
        return found

    def _cut_link(self) -> None:
        one, other = self._any(), self._any()
        if one != other:
            self._tell(f"cut the link between brokers {one} and {other}")
            self._cluster.cut(one, [other])
            self._are_links_whole = False

    def _cut_off_from_peers(self) -> None:
        broker_id = self._any()
        self._tell(f"cut broker {broker_id} off from its peers")
        self._cluster.cut_off_from_peers(broker_id)
        self._are_links_whole = False

    def _cut_off_and_kill(self) -> None:
        """What it takes meanwhile nobody else has."""
        broker_id = self._one_of(Trouble.NONE)
        if broker_id is not None:
            self.troubles[broker_id] = Trouble.CHANGING
            self._begin(self._cutting_off_and_killing(broker_id, self._randomness.below(1000) / 1000))

    async def _cutting_off_and_killing(self, broker_id: BrokerId, after_s: float) -> None:
        self._tell(f"cut broker {broker_id} off from its peers, and kill it after {after_s} s")
        self._cluster.cut_off_from_peers(broker_id)
        self._are_links_whole = False
        await asyncio.sleep(after_s)
        self._kill_one(broker_id, DEATH_IS_NOTICED_AFTER_S)

    def _cut_off_from_clients(self) -> None:
        broker_id = self._any()
        self._tell(f"cut broker {broker_id} off from clients")
        self._cluster.cut_off_from_clients(broker_id)
        self._are_links_whole = False

    def _mend(self) -> None:
        self._tell("mend all links")
        self._cluster.mend()
        self._are_links_whole = True

    # -- disks

    async def _lose_a_disk(self) -> None:
        """A power cut or an empty disk, where another in-sync replica has everything.

        Nothing else happens until the others have noticed: I4 promises nothing if the rest dies meanwhile.
        """
        broker_id = self._one_of(Trouble.NONE)
        if broker_id is None or not self._can_spare(broker_id):
            return
        is_wiped = self._randomness.below(3) == 0
        controller = self._controller()
        is_missed = self._randomness.below(2) == 0 and controller != broker_id and self._is_well(controller)
        earlier = registered_epoch(self._cluster.store_state, broker_id)
        self._tell(f"{'lose the disk' if is_wiped else 'cut the power'} of broker {broker_id}")
        if is_missed:
            self._cluster.freeze(controller)
        self._cluster.cut_power(broker_id)
        if is_wiped:
            self._cluster.wipe(broker_id)
        self.troubles[broker_id] = Trouble.DOWN
        if is_missed:
            await self._come_back_unseen(broker_id, controller, earlier)
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_UNNOTICED_S):
                while self._is_in_sync(broker_id, earlier):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)

    async def _come_back_unseen(self, broker_id: BrokerId, controller: BrokerId, earlier: int | None) -> None:
        """The controller sees the broker before and after, never gone."""
        self._tell(f"the controller, broker {controller}, looks away")
        self._repair(broker_id, Trouble.DOWN)
        while registered_epoch(self._cluster.store_state, broker_id) in (None, earlier):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        self._cluster.thaw(controller)

    def _controller(self) -> BrokerId:
        node = self._cluster.store_state.find(znodes.CONTROLLER)
        return NO_BROKER if node is None else znodes.decode_controller(node.data)

    def _is_well(self, broker_id: BrokerId) -> bool:
        return self.troubles.get(broker_id) is Trouble.NONE

    def _can_spare(self, broker_id: BrokerId) -> bool:
        others = {
            other
            for other, trouble in self.troubles.items()
            if other != broker_id
            and trouble is Trouble.NONE
            and registered_epoch(self._cluster.store_state, other) is not None
        }
        return all(
            others.intersection(stored.state.in_sync_replicas)
            for _, stored in stored_partitions(self._cluster.store_state)
        )

    def _is_in_sync(self, broker_id: BrokerId, earlier: int | None) -> bool:
        """By a state that was written before the broker came back, or though it has not."""
        store = self._cluster.store_state
        epoch = registered_epoch(store, broker_id)
        is_back = epoch is not None and epoch != earlier
        return any(
            broker_id in stored.state.in_sync_replicas and not (is_back and stored.modified_id > (epoch or 0))
            for _, stored in stored_partitions(store)
        )
