"""Follower side of replication throttles (Kafka: shouldFollowerThrottle): partitions left out of fetches (R24)."""

from collections.abc import Iterable

from tidelog.client.consumer.fetch_session import FetchSessionHandler
from tidelog.replication.follower import FollowerState
from tidelog.replication.leader_link import FetchingBroker
from tidelog.replication.partition_states import PartitionFetchState, PartitionStates
from tidelog.types import TopicPartition

MIN_PAUSE_S = 0.01


class FollowerThrottle:
    """Keeps throttled partitions of one fetcher out of its session while the quota is exceeded.

    A partition that is in sync is never left out: it would fall out of the ISR. The others come back together, ordered
    by the round in which they last got records: one response may not have room for all.
    """

    def __init__(self, broker: FetchingBroker, states: PartitionStates, session: FetchSessionHandler) -> None:
        self._broker = broker
        self._states = states
        self._session = session
        self._left_out: dict[TopicPartition, PartitionFetchState] = {}
        self._round = 0
        self._last_round: dict[TopicPartition, int] = {}
        """Of partitions that got records since the quota was last exceeded, or were left out then."""

    def apply(self) -> None:
        """Before a fetch is built: take partitions out of the session, or bring them back."""
        if not self._left_out and not self._broker.quota.is_limited:
            return
        self._round += 1
        if len(self._last_round) > 2 * len(self._states):  # some are no longer followed
            self._last_round.clear()
        self._last_round.update(dict.fromkeys(self._states.moved(), self._round))
        if self._broker.quota.is_exceeded(self._broker.clock.monotonic()):
            self._leave_out()
        else:
            self._bring_back()

    def _leave_out(self) -> None:
        before, self._left_out = self._left_out, {}
        throttled = {
            each.partition.topic_partition: each
            for each in self._states.in_state(FollowerState.FETCHING)
            if each.partition.throttled.as_follower and not each.core.is_in_sync
        }
        self._last_round = {key: self._last_round.get(key, 0) for key in throttled}
        for key in sorted(throttled, key=self._last_round.__getitem__):
            self._left_out[key] = throttled[key]
            self._broker.quota.left_out += key not in before
            self._states.forget_move(key)
            self._session.remove(key)
        self._return(each for key, each in before.items() if key not in throttled)

    def _bring_back(self) -> None:
        left_out, self._left_out = self._left_out, {}
        self._return(left_out.values())

    def _return(self, fetch_states: Iterable[PartitionFetchState]) -> None:
        for each in fetch_states:
            if self._states.is_current(each) and each.core.state is FollowerState.FETCHING:
                self._states.on_moved(each)

    @property
    def is_everything_left_out(self) -> bool:
        """Whether a fetch would ask for nothing. It must not be sent: the leader would answer at once, without end."""
        return bool(self._left_out) and not self._session

    @property
    def pause_s(self) -> float:
        """Until the quota allows more, but no longer than Kafka's pause of an idle fetcher."""
        longest_s = self._broker.settings().replica_fetch_backoff_ms / 1000
        wait_s = self._broker.quota.wait_s(self._broker.clock.monotonic())
        return max(MIN_PAUSE_S, min(wait_s, longest_s))
