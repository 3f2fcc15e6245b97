"""Fetch states of the partitions of one fetcher, by follower state (Kafka: PartitionStates, PartitionFetchState)."""

from collections.abc import Iterable, Iterator

from tidelog.replication.follower import FollowerState, PartitionFollower
from tidelog.replication.partition import Partition
from tidelog.types import TopicPartition, Uuid


class PartitionFetchState:
    """A partition with the follower role in which one fetcher fetches it. A later role gets another object."""

    __slots__ = ("core", "partition")

    def __init__(self, partition: Partition) -> None:
        assert isinstance(partition.role, PartitionFollower), "only a follower fetches (R9)"
        self.partition = partition
        self.core = partition.role


class PartitionStates:
    """Index by follower state, so that a round visits only the partitions that it is for."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], PartitionFetchState] = {}
        self._by_id: dict[tuple[Uuid, int], PartitionFetchState] = {}
        self._by_state: dict[FollowerState, dict[TopicPartition, PartitionFetchState]] = {
            state: {} for state in FollowerState
        }
        self._moved: dict[TopicPartition, PartitionFetchState] = {}
        """Partitions whose fetch offset or log start differs from the fetch session's."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[PartitionFetchState]:
        return iter(list(self._by_name.values()))

    def get(self, topic: str, partition: int) -> PartitionFetchState | None:
        return self._by_name.get((topic, partition))

    def get_by_id(self, topic_id: Uuid, partition: int) -> PartitionFetchState | None:
        return self._by_id.get((topic_id, partition))

    def is_current(self, fetch_state: PartitionFetchState) -> bool:
        """Whether this fetcher still fetches the partition in this role."""
        return self._by_name.get(fetch_state.partition.topic_partition) is fetch_state

    def add(self, partition: Partition) -> PartitionFetchState:
        fetch_state = PartitionFetchState(partition)
        self._by_name[partition.topic_partition] = fetch_state
        self._by_id[partition.topic_id, partition.topic_partition.partition] = fetch_state
        return fetch_state

    def remove(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        fetch_state = self._by_name.pop(topic_partition, None)
        if fetch_state is not None:
            self._by_id.pop((fetch_state.partition.topic_id, topic_partition.partition), None)
            self._remove_from_states(topic_partition)
        return fetch_state

    def update(self, fetch_state: PartitionFetchState) -> None:
        """Index the partition by its current state."""
        topic_partition, state = fetch_state.partition.topic_partition, fetch_state.core.state
        self._remove_from_states(topic_partition)
        self._by_state[state][topic_partition] = fetch_state
        if state is FollowerState.FETCHING:
            self._moved[topic_partition] = fetch_state

    def _remove_from_states(self, topic_partition: TopicPartition) -> None:
        for in_state in self._by_state.values():
            in_state.pop(topic_partition, None)
        self._moved.pop(topic_partition, None)

    def in_state(self, state: FollowerState) -> list[PartitionFetchState]:
        return list(self._by_state[state].values())

    def has_any(self, state: FollowerState) -> bool:
        return bool(self._by_state[state])

    def on_moved(self, fetch_state: PartitionFetchState) -> None:
        """The log end or log start moved: the next fetch must include the partition."""
        self._moved[fetch_state.partition.topic_partition] = fetch_state

    def moved(self) -> Iterable[TopicPartition]:
        return self._moved

    def forget_move(self, topic_partition: TopicPartition) -> None:
        """The next fetch leaves the partition out; `on_moved` brings it back."""
        self._moved.pop(topic_partition, None)

    def pop_moved(self) -> dict[TopicPartition, PartitionFetchState]:
        moved, self._moved = self._moved, {}
        return moved
