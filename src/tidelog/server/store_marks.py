"""Marks of how far a broker has followed its coordination store, by which an older copy of it is recognised (R44).

Every store has a random id. Every broker has a counter in it that nobody else raises: the version of the parent node of
its log directories. It raises the counter when the state of a partition that it holds has changed, and then notes it on
its own disk. A store with the same id that has counted less is an older copy. Leader epochs do not tell that for sure:
they do not rise when only in-sync replicas change, and those of a copy that is in use again catch up.
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


async def identified_state(store: Store, randomness: Randomness) -> StoreState:
    """The state of a store, which has an id after this."""
    while not (state := await read_store_state(store)).node.store_id:
        node = state.node._replace(store_id=uuid_text(randomness.bytes(16)))
        try:
            await store.set(znodes.CLUSTER_ID, znodes.encode_cluster(node), state.version)
        except BadVersion:
            continue
    return state


async def count_change(store: Store, broker_id: BrokerId) -> StoreMark | None:
    """Raise the counter of this broker; None if that is not possible now. It may have been raised all the same."""
    try:
        state = await read_store_state(store)
        if not state.is_in_use or not state.node.store_id or not store.is_session_alive:
            return None
        counter = await store.set(znodes.log_directories_path(broker_id), b"")
    except (StoreError, znodes.MalformedNode):
        return None
    return StoreMark(state.node.store_id, counter.version)


async def changes_missing(store: Store, broker_id: BrokerId, noted: StoreMark) -> int:
    """How many of the changes that the broker has noted this store has not counted; 0 if it is another store."""
    state = await read_store_state(store)
    if not noted.store_id or state.node.store_id != noted.store_id:
        return 0
    counter = await store.exists(znodes.log_directories_path(broker_id))
    return max(0, noted.changes - (NO_COUNTER if counter is None else counter.version))
