"""A state machine kept in a topic: what it is asked, and what it gives back.

A step looks at the state and says what is to be done: records to write, answers to give, timers to set. The runtime
appends the records as one batch, then lets the machine take them over by `replay`, the only way in which durable state
changes: loading the topic therefore leads to the same state. Answers leave when the records are committed.
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
    """None takes the key back."""


class Producer(NamedTuple):
    """Whose transaction records are part of: they count once it is committed."""

    producer_id: int
    producer_epoch: int


Reply: TypeAlias = Deferred[Any]
"""Where the response to one request goes. Machines keep it, and name it in `Effects`; the runtime completes it."""


class Answer(NamedTuple):
    """An effect: complete `reply` with this outcome, once the records of the step are committed."""

    reply: Reply
    outcome: Response | KafkaError


class SetTimer(NamedTuple):
    key: Hashable
    delay_ms: int


class CancelTimer(NamedTuple):
    key: Hashable


class Effects:
    """What one step wants done, collected while it decides."""

    __slots__ = (
        "after_commit",
        "answers",
        "is_read_of_state",
        "may_be_gathered",
        "monotonic_ms",
        "now_ms",
        "on_refused",
        "producer",
        "records",
        "timers",
    )

    def __init__(self, now_ms: int, monotonic_ms: int | None = None) -> None:
        self.now_ms = now_ms
        """The time of the step, of the wall clock."""
        self.monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
        """The same of a clock that nobody sets: for how long something may take, which no other broker will know."""
        self.records: list[StateRecord] = []
        self.producer: Producer | None = None
        """Set if the records are part of a transaction."""
        self.answers: list[Answer] = []
        self.after_commit: list[Callable[[], None]] = []
        """What begins once the records are committed, after the answers. Forgotten if they never are."""
        self.timers: list[SetTimer | CancelTimer] = []
        self.is_read_of_state = False
        """The answers tell durable state, so they wait until all that was written before is committed."""
        self.may_be_gathered = False
        """The records need not be replayed before the next step of this kind: one batch may hold those of many."""
        self.on_refused: OnRefused | None = None
        """What to do instead if the records cannot be appended. Without it all answers fail with the error."""

    def write(self, key: bytes, value: bytes | None) -> None:
        self.records.append(StateRecord(key, value))

    def answer(self, reply: Reply, response: Response) -> None:
        self.answers.append(Answer(reply, response))

    def fail(self, reply: Reply, error: KafkaError) -> None:
        # The way by which an error came leads back here: a cycle that only the garbage collector would find.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        self.answers.append(Answer(reply, error))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        """In place of a timer with the same key; `on_timer` is called with it."""
        self.timers.append(SetTimer(key, delay_ms))

    def cancel_timer(self, key: Hashable) -> None:
        self.timers.append(CancelTimer(key))


OnRefused: TypeAlias = Callable[[KafkaError, Effects], None]
"""Gets the error, and what to fill in place of the effects that did not come about."""


class StateMachine(Protocol):
    """One partition of the topic. No clock, no I/O, no await."""

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        """A record was appended, just now or long ago. Records that it cannot read are reported and skipped."""

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        """The transaction of a producer has ended here."""

    def on_loaded(self, effects: Effects) -> None:
        """All there is was replayed; this broker answers from now on. Timers are set here."""

    def on_timer(self, key: Any, effects: Effects) -> None: ...

    def on_unloaded(self, effects: Effects) -> None:
        """This broker does not answer any more: fail the replies that wait inside. Nothing can be written."""


Step: TypeAlias = Callable[[Any, Effects], None]
"""A request on its way into a machine: `lambda machine, effects: machine.join(request, reply, effects)`."""
