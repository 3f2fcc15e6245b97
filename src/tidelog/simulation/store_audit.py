"""Audit of writes to the coordination store: only the controller or the leader writes a partition state (I1, I6)."""

from collections.abc import Callable, Sequence

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration as PartitionState
from tidelog.cluster.znodes import TakeoverState
from tidelog.controller.elections import FIRST_LEADER_EPOCH, FIRST_STATE_VERSION
from tidelog.simulation.inspection import Stored, is_in_use, stored_partition, stored_partitions, topic_id_of
from tidelog.store.interface import Create, Delete, Operation, Set
from tidelog.store.memory import MemoryStoreState
from tidelog.types import NO_BROKER, TopicPartition

UNCLEAN_ELECTIONS = "unclean.leader.election.enable"


def _is_clean(before: PartitionState, after: PartitionState) -> bool:
    """True if the leader was elected among replicas with all committed records.

    A partition that was created in an outage with one replica in sync, and lost it, may have committed nothing. That
    nothing was committed is what the checks of the logs find (I2, I4).
    """
    candidates = (*before.in_sync_replicas, *before.eligible_leader_replicas)
    is_first_isr = before.leader_epoch <= FIRST_LEADER_EPOCH + 1 and before.version <= FIRST_STATE_VERSION + 1
    return after.leader in candidates or (is_first_isr and len(before.in_sync_replicas) == 1 < len(before.replicas))


class StoreAudit:
    """Audit of all writes. It only records violations: it must not affect brokers."""

    def __init__(self, store: MemoryStoreState) -> None:
        self._store = store
        self.states: dict[TopicPartition, Stored] = dict(stored_partitions(store))
        """Last written state of each partition."""
        self._controllers: dict[int, int] = {}
        """Session of the controller by controller epoch."""
        epoch, controller = store.find(znodes.CONTROLLER_EPOCH), store.find(znodes.CONTROLLER)
        if epoch is not None and controller is not None:
            self._controllers[znodes.decode_controller_epoch(epoch.data)] = controller.owner
        self.violations: list[str] = []
        self.on_state: list[Callable[[TopicPartition, Stored], None]] = []
        """Callbacks for every written state."""
        self.on_unclean: list[Callable[[TopicPartition, Stored], None]] = []
        """Callbacks for every election of a topic that allows unclean ones; called before `on_state`."""
        self._topics_before: dict[str, bytes] = {}
        """Topics before the store was lost, until the takeover is done (R44)."""
        self._lossy_topics: set[str] = set()
        """Topics that allowed unclean elections when the store was lost. Their logs may differ in committed records."""
        store.on_written.append(self._on_written)
        store.on_lost.append(self._on_lost)

    def _on_written(self, session_id: int, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Create | Set) and operation.path == znodes.CONTROLLER_EPOCH:
                self._on_new_term(session_id, operation)
            elif isinstance(operation, Create | Set) and operation.path == znodes.CLUSTER_ID:
                self._on_cluster_id(operation)
            elif operation.path.startswith(znodes.TOPICS) and operation.path.endswith("/state"):
                topic, _, index = operation.path.removeprefix(f"{znodes.TOPICS}/").split("/")[:3]
                topic_partition = TopicPartition(topic, int(index))
                if isinstance(operation, Create | Set):
                    self._on_state(session_id, topic_partition)
                elif isinstance(operation, Delete):
                    self.states.pop(topic_partition, None)

    def _on_new_term(self, session_id: int, operation: Create | Set) -> None:
        epoch = znodes.decode_controller_epoch(operation.data)
        if epoch in self._controllers:
            self.violations.append(f"I6 controller epoch {epoch} was given twice")
        self._controllers[epoch] = session_id

    def _on_lost(self) -> None:
        """After a loss, terms and leaders are checked by the logs (I6), not by earlier states."""
        for topic in self._store.children.get(znodes.TOPICS, ()):
            node = self._store.find(znodes.topic_path(topic))
            assert node is not None
            self._topics_before[topic] = node.data
            if self._allows_unclean_elections(topic):
                self._lossy_topics.add(topic)
        self.states.clear()
        self._controllers.clear()

    def _on_cluster_id(self, operation: Create | Set) -> None:
        """R44: when an empty store comes into use, all earlier topics are registered."""
        if not self._topics_before or znodes.decode_cluster(operation.data).takeover is not TakeoverState.DONE:
            return
        for topic, data in sorted(self._topics_before.items()):
            node = self._store.find(znodes.topic_path(topic))
            if node is None:
                self.violations.append(f"R44 the store is in use without topic {topic}, which was there before")
            elif topic_id_of(topic, node.data) != topic_id_of(topic, data):
                self.violations.append(f"R44 another topic has the name of {topic}, which was there before")
        self._topics_before.clear()

    def _on_state(self, session_id: int, topic_partition: TopicPartition) -> None:
        found = stored_partition(self._store, topic_partition)
        if found is None:
            return
        previous, after = self.states.get(topic_partition), found.state
        before = None if previous is None else previous.state
        self.states[topic_partition] = found
        if after.leader != NO_BROKER and after.leader not in after.in_sync_replicas:
            self._note("I1", topic_partition, after, "the leader is not in sync")
        if not set(after.in_sync_replicas) <= set(after.replicas):
            self._note("I1", topic_partition, after, f"the ISR is not part of the replicas {after.replicas}")
        if before is not None and after.version <= before.version:
            self._note("I6", topic_partition, after, f"version {after.version} follows version {before.version}")
        if before is None or not is_in_use(self._store):
            # Nobody acts on the states of an unfinished takeover. The next controller repeats it and may find other
            # logs, so that the same epoch may get another leader (R44).
            self._check_controller(session_id, topic_partition, after)
            if topic_partition.topic in self._lossy_topics:
                self._on_unclean_election(topic_partition, found)
        else:
            self._check_successor(session_id, topic_partition, before, found)
        for callback in self.on_state:
            callback(topic_partition, found)

    def _check_successor(
        self, session_id: int, topic_partition: TopicPartition, before: PartitionState, found: Stored
    ) -> None:
        """Check a state that follows a state on which brokers may have acted."""
        after = found.state
        if after.leader_epoch > before.leader_epoch:
            self._check_controller(session_id, topic_partition, after)
            if after.leader != NO_BROKER:
                self._on_election(topic_partition, before, found)
        elif after.leader_epoch < before.leader_epoch:
            self._note("I6", topic_partition, after, f"the leader epoch was {before.leader_epoch} already")
        elif after.leader != before.leader:
            self._note("I6", topic_partition, after, f"broker {before.leader} leads in this epoch")
        else:
            self._check_leader(session_id, topic_partition, after)

    def _on_election(self, topic_partition: TopicPartition, before: PartitionState, found: Stored) -> None:
        """Where unclean elections are allowed, each election may lose records."""
        if self._allows_unclean_elections(topic_partition.topic):
            self._on_unclean_election(topic_partition, found)
        elif not _is_clean(before, found.state):
            self._note("I4", topic_partition, found.state, "an unclean election, which the topic does not allow")

    def _allows_unclean_elections(self, topic: str) -> bool:
        node = self._store.find(znodes.topic_config_path(topic))
        configs = {} if node is None else znodes.decode_config(node.data, topic)
        return configs.get(UNCLEAN_ELECTIONS) == "true"

    def _on_unclean_election(self, topic_partition: TopicPartition, found: Stored) -> None:
        for callback in self.on_unclean:
            callback(topic_partition, found)

    def _check_controller(self, session_id: int, topic_partition: TopicPartition, after: PartitionState) -> None:
        """Only the current controller starts a leader epoch (R31)."""
        if after.controller_epoch != max(self._controllers):
            self._note("I6", topic_partition, after, f"controller epoch {max(self._controllers)} has begun")
        elif self._controllers[after.controller_epoch] != session_id:
            self._note("I6", topic_partition, after, "another session is controller in this epoch")

    def _check_leader(self, session_id: int, topic_partition: TopicPartition, after: PartitionState) -> None:
        """Within a leader epoch only the leader changes the state."""
        registration = self._store.find(znodes.broker_path(after.leader))
        if registration is None or registration.owner != session_id:
            self._note("I6", topic_partition, after, "it was not written by its leader")

    def _note(self, invariant: str, topic_partition: TopicPartition, state: PartitionState, what: str) -> None:
        self.violations.append(
            f"{invariant} {topic_partition} leader={state.leader} leader_epoch={state.leader_epoch}"
            f" in_sync={state.in_sync_replicas} controller_epoch={state.controller_epoch}: {what}"
        )
