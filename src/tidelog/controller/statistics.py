"""Controller metrics: counters of this process and gauges of the cluster."""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.controller.context import ControllerContext


@dataclass(slots=True)
class ControllerStatistics:
    """The gauges of the cluster are 0 on a broker that is not the controller."""

    context: Callable[[], ControllerContext | None]
    """None on a broker that is not the controller."""
    leader_elections: int = 0
    """Number of partitions for which a new leader was elected."""
    election_rounds: int = 0
    """Events that elected leaders; LeaderElectionRateAndTimeMs counts and times these."""
    election_time_ms: float = 0.0
    unclean_elections: int = 0
    events: int = 0
    failed_events: int = 0
    event_time_ms: float = 0.0

    @property
    def active_controller_count(self) -> int:
        return int(self.context() is not None)

    @property
    def offline_partitions_count(self) -> int:
        return self._of_context(lambda context: context.offline_partition_count)

    @property
    def preferred_replica_imbalance_count(self) -> int:
        return self._of_context(lambda context: context.preferred_replica_imbalance_count)

    @property
    def global_topic_count(self) -> int:
        return self._of_context(lambda context: len(context.topics))

    @property
    def global_partition_count(self) -> int:
        return self._of_context(lambda context: context.partition_count)

    @property
    def active_broker_count(self) -> int:
        return self._of_context(lambda context: len(context.brokers))

    @property
    def topics_to_delete_count(self) -> int:
        return self._of_context(lambda context: len(context.topics_to_delete))

    @property
    def topics_ineligible_to_delete_count(self) -> int:
        return self._of_context(lambda context: len(context.topics_ineligible_for_deletion))

    def record_event(self, duration_ms: float, *, had_elections: bool) -> None:
        self.events += 1
        self.event_time_ms += duration_ms
        if had_elections:
            self.election_rounds += 1
            self.election_time_ms += duration_ms

    def _of_context(self, figure: Callable[[ControllerContext], int]) -> int:
        context = self.context()
        return 0 if context is None else figure(context)
