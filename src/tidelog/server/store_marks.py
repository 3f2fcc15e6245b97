"""Change counters that detect an older copy of the coordination store (R44).

Every store has a random id. Every broker has its own counter in it: the version of the parent node of its log
directories. The broker increments it when the state of a partition that it hosts, or a config, has changed, and then
records it on its own disk. A store with the same id and a lower counter is an older copy. Leader epochs are no proof:
they do not rise when only the ISR changes, and those of a restored copy catch up once it is in use.
"""

from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.controller.takeover import StoreState, read_store_state
from tidelog.runtime.randomness import Randomness
from tidelog.store.interface import BadVersion, Store, StoreError
from tidelog.types import BrokerId, uuid_text

NO_COUNTER = -1


class StoreMark(NamedTuple):
    store_id: str
    changes: int


async def ensure_store_id(store: Store, randomness: Randomness) -> StoreState:
    """The state of the store. Gives the store an id if it has none."""
    while not (state := await read_store_state(store)).node.store_id:
        node = state.node._replace(store_id=uuid_text(randomness.bytes(16)))
        try:
            await store.set(znodes.CLUSTER_ID, znodes.encode_cluster(node), state.version)
        except BadVersion:
            continue
    return state


async def increment_change_counter(store: Store, broker_id: BrokerId) -> StoreMark | None:
    """Increment the counter of this broker; None if that failed. It may have been incremented all the same."""
    try:
        state = await read_store_state(store)
        if not state.is_in_use or not state.node.store_id or not store.is_session_alive:
            return None
        counter = await store.set(znodes.log_directories_path(broker_id), b"")
    except (StoreError, znodes.MalformedNode):
        return None
    return StoreMark(state.node.store_id, counter.version)


async def count_missing_changes(store: Store, broker_id: BrokerId, noted: StoreMark) -> int:
    """Changes that the broker has recorded and this store has not; 0 if it is another store."""
    state = await read_store_state(store)
    if not noted.store_id or state.node.store_id != noted.store_id:
        return 0
    counter = await store.exists(znodes.log_directories_path(broker_id))
    return max(0, noted.changes - (NO_COUNTER if counter is None else counter.version))
