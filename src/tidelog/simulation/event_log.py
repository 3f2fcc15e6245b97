"""Event log of a simulated run: faults, leader and ISR changes, and the logs of replicas at a violation."""

from collections.abc import Iterator, Sequence

from tidelog.cluster import znodes
from tidelog.simulation.cluster import Machine, SimulatedCluster
from tidelog.simulation.inspection import held_log, stored_partition, stored_partitions
from tidelog.store.interface import Create, Operation, Set
from tidelog.types import NO_BROKER, TopicPartition


class EventLog:
    """Lines, each with its virtual time in seconds."""

    def __init__(self, cluster: SimulatedCluster, lines: list[str]) -> None:
        self._cluster = cluster
        self._lines = lines
        cluster.store_state.on_written.append(self._on_written)

    def log_event(self, line: str) -> None:
        self._lines.append(f"{self._cluster.clock.monotonic():9.3f} {line}")

    def log_violations(self, violations: Sequence[str]) -> None:
        for line in violations:
            self.log_event(f"VIOLATED {line}")
        for line in self._replica_logs():
            self.log_event(line)

    def _on_written(self, session_id: int, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if not isinstance(operation, Create | Set):
                continue
            if operation.path == znodes.CONTROLLER:
                self.log_event(f"    broker {znodes.decode_controller(operation.data)} is controller")
            elif operation.path.startswith(znodes.TOPICS) and operation.path.endswith("/state"):
                topic, _, index = operation.path.removeprefix(f"{znodes.TOPICS}/").split("/")[:3]
                self._on_state(TopicPartition(topic, int(index)))

    def _on_state(self, topic_partition: TopicPartition) -> None:
        found = stored_partition(self._cluster.store_state, topic_partition)
        if found is None:
            return
        state = found.state
        leader = "no leader" if state.leader == NO_BROKER else f"leader {state.leader}"
        in_sync = ", ".join(map(str, state.in_sync_replicas))
        self.log_event(f"    {topic_partition} {leader} in epoch {state.leader_epoch}, in sync: {in_sync}")

    def _replica_logs(self) -> Iterator[str]:
        for topic_partition, stored in stored_partitions(self._cluster.store_state):
            for broker_id in stored.state.replicas:
                yield f"    {topic_partition} on broker {broker_id}: {self._replica(broker_id, topic_partition)}"

    def _replica(self, broker_id: int, topic_partition: TopicPartition) -> str:
        machine = self._cluster.machines[broker_id]
        log = held_log(self._cluster, broker_id, topic_partition)
        if log is None:
            return "no log" if machine.broker is not None else _process_of(machine)
        epochs = ", ".join(f"{epoch} from {start}" for epoch, start in log.leader_epochs.starts)
        return (
            f"{_process_of(machine)}, log [{log.log_start_offset}, {log.log_end_offset}),"
            f" high watermark {log.high_watermark}, epochs: {epochs or 'none'}"
        )


def _process_of(machine: Machine) -> str:
    if machine.process is None:
        return "down"
    return machine.process.state.name.lower()
