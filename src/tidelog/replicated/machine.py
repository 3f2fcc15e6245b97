"""Interface of coordinator state machines (Kafka: CoordinatorShard) and the effects of their steps.

A step reads the state and fills in its effects: records to write, replies, timers. The shard appends the records as one
batch, then passes them to `replay`, the only place where durable state changes: loading the topic therefore restores
the same state. Replies are sent when the records are committed.
"""

# Core: no clock, no I/O, no await.

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol, TypeAlias

from tidelog.errors import KafkaError
from tidelog.protocol.structs import Response
from tidelog.runtime.deferred import Deferred


class StateRecord(NamedTuple):
    key: bytes
    value: bytes | None
    """None is a tombstone."""


class Producer(NamedTuple):
    """Producer whose transaction the records belong to. They take effect when it commits."""

    producer_id: int
    producer_epoch: int


DEFAULT_MAX_RECORD_BYTES = 1_048_588
"""Default of `max.message.bytes`."""

Reply: TypeAlias = Deferred[Any]
"""Handle for the response to one request. Machines name it in `Effects`; the shard completes it."""


class Completable(Protocol):
    """A reply, or what stands for one and decides whether it still gets the outcome."""

    def complete(self, outcome: Any) -> None: ...


class ReplyOutcome(NamedTuple):
    """Effect: complete `reply` with this outcome when the records of the step are committed."""

    reply: Completable
    outcome: Response | KafkaError


class SetTimer(NamedTuple):
    key: Hashable
    delay_ms: int


class CancelTimer(NamedTuple):
    key: Hashable


class Effects:
    """Effects of one step, collected while it decides."""

    __slots__ = (
        "after_commit",
        "is_read_of_state",
        "max_record_bytes",
        "may_be_batched",
        "monotonic_ms",
        "now_ms",
        "on_rejected",
        "producer",
        "records",
        "responses",
        "timers",
    )

    def __init__(
        self, now_ms: int, monotonic_ms: int | None = None, max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES
    ) -> None:
        self.now_ms = now_ms
        """Wall-clock time of the step."""
        self.monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
        """Monotonic time of the step, for durations that stay on this broker."""
        self.max_record_bytes = max_record_bytes
        """The partition accepts no larger batch: state that must fit into one record cannot grow beyond it."""
        self.records: list[StateRecord] = []
        self.producer: Producer | None = None
        """Set if the records belong to a transaction."""
        self.responses: list[ReplyOutcome] = []
        self.after_commit: list[AfterCommit] = []
        """Steps that run after the replies when the records are committed; dropped if they never are."""
        self.timers: list[SetTimer | CancelTimer] = []
        self.is_read_of_state = False
        """The replies contain durable state, so they wait until all earlier records are committed."""
        self.may_be_batched = False
        """The next step of this kind may run before these records are replayed: steps can share one batch."""
        self.on_rejected: OnRejected | None = None
        """Alternative effects if the append fails. Without it all replies fail with the error."""

    def write(self, key: bytes, value: bytes | None) -> None:
        self.records.append(StateRecord(key, value))

    def answer(self, reply: Completable, response: Response) -> None:
        self.responses.append(ReplyOutcome(reply, response))

    def fail(self, reply: Completable, error: KafkaError) -> None:
        # Drop the traceback: it refers to this frame, a cycle that only the garbage collector would free.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.responses.append(ReplyOutcome(reply, error))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        """Replaces a timer with the same key. `on_timer` is called with the key."""
        self.timers.append(SetTimer(key, delay_ms))

    def cancel_timer(self, key: Hashable) -> None:
        self.timers.append(CancelTimer(key))


AfterCommit: TypeAlias = Callable[[Effects], None]
"""Gets the effects of a step of its own, with the time of the commit."""

OnRejected: TypeAlias = Callable[[KafkaError, Effects], None]
"""Gets the error and empty effects to fill in instead of the failed ones."""


class StateMachine(Protocol):
    """State machine of one partition of an internal topic. No clock, no I/O, no await."""

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        """Apply a record that was appended or loaded. Unreadable records are logged and skipped."""

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        """Apply the end marker of a producer's transaction."""

    def on_loaded(self, effects: Effects) -> None:
        """All records were replayed, and requests follow. Sets timers."""

    def on_timer(self, key: Any, effects: Effects) -> None: ...

    def on_unloaded(self, effects: Effects) -> None:
        """This broker is no longer the coordinator: fail all pending replies. Nothing can be written."""


Step: TypeAlias = Callable[[Any, Effects], None]
"""A call of a machine: `lambda machine, effects: machine.join(request, reply, effects)`."""
