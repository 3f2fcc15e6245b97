"""Looks at every write to the coordination store: whether whoever wrote was in office then (I1, I6)."""

from collections.abc import Callable, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.image import Partition as PartitionState
from tidelog.simulation.looking import Stored, stored_partition, stored_partitions
from tidelog.store.interface import Create, Operation, Set
from tidelog.store.memory import MemoryStoreState
from tidelog.types import NO_BROKER, TopicPartition


class StoreAudit:
    """Only notes what is wrong: a broker must not notice that it is watched."""

    def __init__(self, store: MemoryStoreState) -> None:
        self._store = store
        self._known = {topic_partition: found.state for topic_partition, found in stored_partitions(store)}
        self._controllers: dict[int, int] = {}
        """By epoch, the session that claimed it."""
        epoch, office = store.find(znodes.CONTROLLER_EPOCH), store.find(znodes.CONTROLLER)
        if epoch is not None and office is not None:
            self._controllers[znodes.decode_controller_epoch(epoch.data)] = office.owner
        self.violations: list[str] = []
        self.on_state: list[Callable[[TopicPartition, Stored], None]] = []
        """Told of every state that is written, when it is written."""
        store.on_written.append(self._on_written)

    def _on_written(self, session_id: int, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if not isinstance(operation, Create | Set):
                continue
            if operation.path == znodes.CONTROLLER_EPOCH:
                self._on_new_term(session_id, operation)
            elif operation.path.startswith(znodes.TOPICS) and operation.path.endswith("/state"):
                topic, _, index = operation.path.removeprefix(f"{znodes.TOPICS}/").split("/")[:3]
                self._on_state(session_id, TopicPartition(topic, int(index)))

    def _on_new_term(self, session_id: int, operation: Create | Set) -> None:
        epoch = znodes.decode_controller_epoch(operation.data)
        if epoch in self._controllers:
            self.violations.append(f"I6 controller epoch {epoch} was given twice")
        self._controllers[epoch] = session_id

    def _on_state(self, session_id: int, topic_partition: TopicPartition) -> None:
        found = stored_partition(self._store, topic_partition)
        if found is None:
            return
        before, after = self._known.get(topic_partition), found.state
        self._known[topic_partition] = after
        if after.leader != NO_BROKER and after.leader not in after.in_sync_replicas:
            self._note("I1", topic_partition, after, "the leader is not in sync")
        if before is None or after.leader_epoch > before.leader_epoch:
            self._check_controller(session_id, topic_partition, after)
        elif after.leader_epoch < before.leader_epoch:
            self._note("I6", topic_partition, after, f"the leader epoch was {before.leader_epoch} already")
        elif after.leader != before.leader:
            self._note("I6", topic_partition, after, f"broker {before.leader} leads in this epoch")
        else:
            self._check_leader(session_id, topic_partition, after)
        for callback in self.on_state:
            callback(topic_partition, found)

    def _check_controller(self, session_id: int, topic_partition: TopicPartition, after: PartitionState) -> None:
        """Only the controller of the present term begins a leader epoch (R31)."""
        if after.controller_epoch != max(self._controllers):
            self._note("I6", topic_partition, after, f"controller epoch {max(self._controllers)} has begun")
        elif self._controllers[after.controller_epoch] != session_id:
            self._note("I6", topic_partition, after, "another session is controller in this epoch")

    def _check_leader(self, session_id: int, topic_partition: TopicPartition, after: PartitionState) -> None:
        """Within a leader epoch only its leader changes the state."""
        registration = self._store.find(znodes.broker_path(after.leader))
        if registration is None or registration.owner != session_id:
            self._note("I6", topic_partition, after, "it was not written by its leader")

    def _note(self, invariant: str, topic_partition: TopicPartition, state: PartitionState, what: str) -> None:
        self.violations.append(
            f"{invariant} {topic_partition} leader={state.leader} leader_epoch={state.leader_epoch}"
            f" in_sync={state.in_sync_replicas} controller_epoch={state.controller_epoch}: {what}"
        )
