"""Partitions of one fetcher, by the state of their followers (Kafka: PartitionStates, partitionMap)."""

from collections.abc import Iterator

from tidelog.replication.follower import FollowerState, PartitionFollower
from tidelog.replication.partition import Partition
from tidelog.types import TopicPartition, Uuid


class Followed:
    """A partition in the role of follower, as one fetcher was given it; later roles of the partition are others'."""

    __slots__ = ("core", "partition")

    def __init__(self, partition: Partition) -> None:
        assert isinstance(partition.role, PartitionFollower), "only a follower fetches (R9)"
        self.partition = partition
        self.core = partition.role


class PartitionStates:
    """What is in which state, so that a round looks only at what it is for."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, int], Followed] = {}
        self._by_id: dict[tuple[Uuid, int], Followed] = {}
        self._by_state: dict[FollowerState, dict[TopicPartition, Followed]] = {state: {} for state in FollowerState}
        self._moved: dict[TopicPartition, Followed] = {}
        """Those whose next fetch differs from what the session says."""

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Followed]:
        return iter(list(self._by_name.values()))

    def get(self, topic: str, partition: int) -> Followed | None:
        return self._by_name.get((topic, partition))

    def get_by_id(self, topic_id: Uuid, partition: int) -> Followed | None:
        return self._by_id.get((topic_id, partition))

    def is_current(self, followed: Followed) -> bool:
        """Whether this fetcher still fetches it, in the same role."""
        return self._by_name.get(followed.partition.topic_partition) is followed

    def add(self, partition: Partition) -> Followed:
        followed = Followed(partition)
        self._by_name[partition.topic_partition] = followed
        self._by_id[partition.topic_id, partition.topic_partition.partition] = followed
        return followed

    def remove(self, topic_partition: TopicPartition) -> Followed | None:
        followed = self._by_name.pop(topic_partition, None)
        if followed is not None:
            self._by_id.pop((followed.partition.topic_id, topic_partition.partition), None)
            self._take_from_states(topic_partition)
        return followed

    def update(self, followed: Followed) -> None:
        """Its state may be another one now."""
        topic_partition, state = followed.partition.topic_partition, followed.core.state
        self._take_from_states(topic_partition)
        self._by_state[state][topic_partition] = followed
        if state is FollowerState.FETCHING:
            self._moved[topic_partition] = followed

    def _take_from_states(self, topic_partition: TopicPartition) -> None:
        for followed in self._by_state.values():
            followed.pop(topic_partition, None)
        self._moved.pop(topic_partition, None)

    def in_state(self, state: FollowerState) -> list[Followed]:
        return list(self._by_state[state].values())

    def has_any(self, state: FollowerState) -> bool:
        return bool(self._by_state[state])

    def on_moved(self, followed: Followed) -> None:
        """Its log has grown, or starts later: the next fetch has to say so."""
        self._moved[followed.partition.topic_partition] = followed

    def take_moved(self) -> dict[TopicPartition, Followed]:
        moved, self._moved = self._moved, {}
        return moved
