"""Coordinator shard: one partition of an internal topic that this broker leads, with its state machine (R10).

A step is one synchronous change: decide, append, replay, and register the replies that wait for the commit.
Batched steps decide at once and share one batch, which is appended and replayed at the end of the event loop turn.
The shard ends in the same step in which the partition loses its leadership: no reply is sent later, even if the high
watermark advances under the next leader.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from tidelog.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from tidelog.protocol.structs import Response
from tidelog.replicated.commits import Commits, Uncommitted, fail
from tidelog.replicated.entries import batch_of, end_marker_of, size_bytes_of
from tidelog.replicated.machine import (
    AfterCommit,
    CancelTimer,
    Completable,
    Effects,
    OnRejected,
    Producer,
    Reply,
    ReplyOutcome,
    StateMachine,
)
from tidelog.replicated.replies import Replies
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.runtime.clock import Clock
from tidelog.runtime.deadlines import Deadlines
from tidelog.runtime.purgatory import DelayedOperation, Purgatory, Watchers
from tidelog.storage.disk_errors import is_transient
from tidelog.storage.validation import AppendOrigin

logger = logging.getLogger(__name__)

_NOT_COORDINATOR_ERRORS = (NotLeaderOrFollower, KafkaStorageError)
_NOT_AVAILABLE_ERRORS = (NotEnoughReplicas, NotEnoughReplicasAfterAppend, RequestTimedOut, UnknownTopicOrPartition)


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """Error for clients after a failed append. Some stay as they are, such as that of a batch that is too large."""
    if is_transient(error):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, _NOT_COORDINATOR_ERRORS):
        return NotCoordinator(error.message)
    if isinstance(error, _NOT_AVAILABLE_ERRORS):
        return CoordinatorNotAvailable(error.message)
    return error


M = TypeVar("M", bound=StateMachine)

GRACE_AFTER_FENCING_S = 5.0
"""Extra time for timers that were due while this broker was suspended: it rejected heartbeats meanwhile."""

MAX_SHARED_BATCH_BYTES = 64 * 1024
"""Maximum size of a batch that steps share. Further steps of the same turn start another one."""


class ShardState(Enum):
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()  # loading failed
    LEFT = auto()  # this broker is no longer its leader


class ShardContext(NamedTuple):
    """Services that all shards of one topic share."""

    clock: Clock
    purgatory: Purgatory
    deadlines: Deadlines
    commit_timeout_ms: Callable[[], int]
    at_end_of_turn: Callable[[Callable[[], None]], object]
    replies: Replies


class Shard(Generic[M]):
    """One partition that this broker leads. `perform` and `perform_batched` run the steps of its machine."""

    __slots__ = (
        "_batch_room_bytes",
        "_batched",
        "_commits",
        "_postponed",
        "_timers",
        "_waiting",
        "_written_end",
        "context",
        "leading_since_epoch",
        "machine",
        "partition",
        "records_loaded",
        "state",
    )

    def __init__(self, partition: Partition, machine: M, context: ShardContext, leading_since_epoch: int) -> None:
        self.partition = partition
        self.machine = machine
        self.leading_since_epoch = leading_since_epoch
        self.state = ShardState.LOADING
        self.records_loaded = 0
        self.context = context
        self._commits = Commits(context.replies.give)
        self._batched: Effects | None = None
        """Effects of the batched steps of this event loop turn, appended together at its end."""
        self._batch_room_bytes = 0
        self._written_end = 0
        """End offset of the last batch that was appended or loaded."""
        self._timers: dict[Hashable, _Timer] = {}
        self._postponed: dict[Hashable, None] = {}
        """Timers that were due while this broker could not act as leader."""
        self._waiting: _Wait | None = None

    @property
    def is_acting(self) -> bool:
        """False while the broker has fenced itself: there may be another leader already."""
        return self.state is ShardState.ACTIVE and self.partition.is_acting_leader

    # ---- load and unload

    def activate(self, loaded_end: int) -> None:
        """All records before `loaded_end` were replayed. They are committed when the high watermark reaches it."""
        assert self.state is ShardState.LOADING, "a shard is loaded once in a leadership (R10)"
        self.state = ShardState.ACTIVE
        self._written_end = loaded_end
        self.perform(lambda machine, effects: machine.on_loaded(effects))

    def mark_failed(self) -> None:
        self.state = ShardState.FAILED

    def leave(self) -> None:
        """This broker is no longer the coordinator: fail all replies and unload the machine."""
        was_active, self.state = self.state is ShardState.ACTIVE, ShardState.LEFT
        self._stop_waiting()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._postponed.clear()
        error = NotCoordinator(f"{self.partition.topic_partition} has another leader now")
        self._commits.fail_all(error)
        batched, self._batched = self._batched, None
        if batched is not None:
            fail(batched.responses, error)
        if was_active:
            self._unload()

    def _unload(self) -> None:
        effects = self._new_effects()
        try:
            self.machine.on_unloaded(effects)
        except Exception:
            logger.exception("coordinator unload failed partition=%s", self.partition.topic_partition)
        self.context.replies.give(effects.responses)

    # ---- steps

    def _new_effects(self) -> Effects:
        clock = self.context.clock
        max_record_bytes = self.partition.log.settings.max_message_bytes
        return Effects(clock.now_ms(), int(clock.monotonic() * 1000), max_record_bytes)

    def perform(self, step: Callable[[M, Effects], None], reply: Reply | None = None) -> None:
        """Run a step. `reply` fails if the step raises."""
        self._write_batched()
        effects = self._decide(step, reply)
        if effects is not None:
            self._carry_out(effects)

    def perform_batched(self, step: Callable[[M, Effects], None], reply: Reply) -> None:
        """Like `perform`, but the step may share a batch with earlier batched steps, which are not replayed yet."""
        effects = self._decide(step, reply)
        if effects is None:
            return
        if effects.may_be_batched and effects.records:
            self._set_timers(effects)
            effects.timers = []
            self._join_batched(effects)
        else:
            self._write_batched()
            self._carry_out(effects)

    def _decide(self, step: Callable[[M, Effects], None], reply: Reply | None) -> Effects | None:
        effects = self._new_effects()
        try:
            step(self.machine, effects)
        except KafkaError as error:
            _abandon(effects, reply, error)
        except Exception as error:
            logger.exception("coordinator step failed partition=%s", self.partition.topic_partition)
            _abandon(effects, reply, UnknownServerError(f"{type(error).__name__} in the coordinator"))
        else:
            return effects
        return None

    def _join_batched(self, effects: Effects) -> None:
        assert effects.producer is None, "a transaction's records have a batch of their own"
        assert effects.on_rejected is None, "batched steps fail together"
        size_bytes = size_bytes_of(effects.records)
        if size_bytes > self._batch_room_bytes:
            self._write_batched()
        batched = self._batched
        if batched is None:
            self._batched = effects
            max_message_bytes = self.partition.log.settings.max_message_bytes
            self._batch_room_bytes = min(MAX_SHARED_BATCH_BYTES, max_message_bytes // 2)
            self.context.at_end_of_turn(self._write_batched)
        else:
            batched.records += effects.records
            batched.responses += effects.responses
            batched.after_commit += effects.after_commit
        self._batch_room_bytes -= size_bytes

    def _write_batched(self) -> None:
        batched = self._batched
        if batched is None:
            return
        self._batched = None
        if self.is_acting:
            self._carry_out(batched)
        else:
            fail(batched.responses, NotCoordinator("this broker is not the coordinator"))

    def _carry_out(self, effects: Effects) -> None:
        responses = effects.responses
        on_rejected, effects.on_rejected = effects.on_rejected, None  # breaks a cycle: it may refer to the effects
        if effects.records:
            try:
                self._append(batch_of(effects))
            except KafkaError as error:
                self._reject(effects, on_rejected, as_coordinator_error(error))
                return
            if not self._replay(effects):
                responses = [
                    ReplyOutcome(each.reply, UnknownServerError("the coordinator failed")) for each in responses
                ]
        elif not effects.is_read_of_state:  # the replies depend on nothing that may be lost
            self.context.replies.give(responses)
            responses = []
        self._set_timers(effects)
        if responses or effects.after_commit:
            self._await_commit(responses, effects.after_commit)

    def _append(self, batch: memoryview) -> None:
        result = self.partition.append_as_leader(batch, ACKS_ALL, AppendOrigin.COORDINATOR)
        assert result.first_offset >= self._written_end, "the machine has replayed all that came before (R10)"
        self._written_end = result.last_offset + 1

    def _replay(self, effects: Effects) -> bool:
        is_whole = True
        for record in effects.records:
            try:
                self.machine.replay(record, effects.producer)
            except Exception:
                logger.exception("replay of written records failed partition=%s", self.partition.topic_partition)
                is_whole = False
        return is_whole

    def _reject(self, effects: Effects, on_rejected: OnRejected | None, error: KafkaError) -> None:
        logger.debug("cannot append coordinator records partition=%s reason=%s", self.partition.topic_partition, error)
        if on_rejected is None:
            self._set_timers(effects)
            fail(effects.responses, error)
        else:
            self.perform(lambda _, instead: on_rejected(error, instead))

    def append_end_marker(
        self, producer: Producer, *, is_committed: bool, coordinator_epoch: int, reply: Reply
    ) -> None:
        """Append the marker in order with the machine's records. The reply is sent when it is committed."""
        self._write_batched()
        now_ms = self.context.clock.now_ms()
        marker = end_marker_of(producer, is_committed=is_committed, coordinator_epoch=coordinator_epoch, now_ms=now_ms)
        try:
            self._append(marker)
        except KafkaError as error:
            reply.fail(as_coordinator_error(error))
            return
        outcome: Response | KafkaError = WriteTxnMarkersResponse()
        try:
            self.machine.replay_end_marker(producer, is_committed=is_committed)
        except Exception:
            logger.exception("replay of end marker failed partition=%s", self.partition.topic_partition)
            outcome = UnknownServerError("the coordinator failed")
        self._await_commit([ReplyOutcome(reply, outcome)], ())

    # ---- commits

    def _await_commit(self, responses: list[ReplyOutcome], after_commit: Sequence[AfterCommit]) -> None:
        due_s = self.context.clock.monotonic() + self.context.commit_timeout_ms() / 1000
        steps = [partial(self._run_after_commit, step) for step in after_commit]
        self._commits.add(Uncommitted(self._written_end, responses, steps, due_s))
        self._commits.finish(self._high_watermark)
        self._wait()

    def _run_after_commit(self, step: AfterCommit) -> None:
        if self.state is ShardState.ACTIVE:  # a reply may have ended the leadership
            self.perform(lambda _, effects: step(effects))

    def _high_watermark(self) -> int:
        return self.partition.log.high_watermark

    def _wait(self) -> None:
        """Register one purgatory operation for all uncommitted steps; none if there are none."""
        if self._waiting is not None or self.state is not ShardState.ACTIVE or not (self._commits or self._postponed):
            return
        timeout_s = self.context.commit_timeout_ms() / 1000
        due_s = self._commits.next_due_s
        if due_s is not None:
            timeout_s = max(due_s - self.context.clock.monotonic(), 0.0)
        self._waiting = _Wait(self)
        self.context.purgatory.wait(self._waiting, [self.partition.watchers], timeout_s)

    def _stop_waiting(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.abandon()

    def is_wait_over(self) -> bool:
        return self._commits.is_due(self._high_watermark()) or bool(self._postponed and self.is_acting)

    def on_wait_over(self) -> None:
        self._waiting = None
        self._commits.finish(self._high_watermark)
        overdue = CoordinatorNotAvailable("the replicas have not confirmed what the coordinator wrote in time")
        self._commits.fail_overdue(self.context.clock.monotonic(), overdue)
        if self._postponed and self.is_acting:
            postponed, self._postponed = self._postponed, {}
            self._timers |= {key: _Timer(self, key, GRACE_AFTER_FENCING_S) for key in postponed}
        self._wait()

    # ---- timers

    def _set_timers(self, effects: Effects) -> None:
        for wanted in effects.timers:
            key = wanted.key
            self._postponed.pop(key, None)
            earlier = self._timers.pop(key, None)
            if earlier is not None:
                earlier.cancel()
            if not isinstance(wanted, CancelTimer):
                self._timers[key] = _Timer(self, key, wanted.delay_ms / 1000)

    def on_timer(self, timer: "_Timer") -> None:
        """Run the timer, unless it was replaced at the moment it was due."""
        key = timer.key
        if self._timers.get(key) is not timer:
            return
        del self._timers[key]
        if self.is_acting:
            self.perform(lambda machine, effects: machine.on_timer(key, effects))
        else:
            self._postponed[key] = None
            self._wait()


class _Timer:
    __slots__ = ("_deadline", "_deadlines", "_shard", "key")

    def __init__(self, shard: Shard[M], key: Hashable, delay_s: float) -> None:
        self.key = key
        self._shard = shard
        self._deadlines = shard.context.deadlines
        self._deadline = self._deadlines.add(delay_s, self._on_due)

    def cancel(self) -> None:
        self._deadlines.cancel(self._deadline)

    def _on_due(self) -> None:
        self._shard.on_timer(self)


class _Wait(DelayedOperation):
    """Waits until the high watermark commits a step, or the first reply is overdue."""

    __slots__ = ("_shard",)

    kind = "Coordinator"

    def __init__(self, shard: Shard[M]) -> None:
        super().__init__()
        self._shard = shard

    def is_satisfied(self, changed: Watchers) -> bool:
        return self._shard.is_wait_over()

    def on_completed(self) -> None:
        self._shard.on_wait_over()


def _abandon(effects: Effects, reply: Reply | None, error: KafkaError) -> None:
    """Fail the replies of a failed step, so that none waits forever. The step has changed nothing."""
    replies: dict[int, Completable] = {id(response.reply): response.reply for response in effects.responses}
    if reply is not None:
        replies[id(reply)] = reply
    fail([ReplyOutcome(each, error) for each in replies.values()], error)
