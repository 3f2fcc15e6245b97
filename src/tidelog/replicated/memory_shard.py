"""In-memory shard for tests of state machines, with a clock that the test advances."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from tidelog.errors import KafkaError
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import CancelTimer, Effects, Producer, StateMachine, StateRecord
from tidelog.runtime.deferred import Deferred

M = TypeVar("M", bound=StateMachine)


class WrittenStep(NamedTuple):
    records: tuple[StateRecord, ...]
    producer: Producer | None


class WrittenEndMarker(NamedTuple):
    producer: Producer
    is_committed: bool


class MemoryReply(Deferred[Any]):
    """Records every completion, so that a test notices a second one."""

    __slots__ = ("outcomes",)

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: list[Response | KafkaError] = []

    def resolve(self, value: Any) -> None:
        self.outcomes.append(value)
        super().resolve(value)

    def fail(self, error: Exception) -> None:
        assert isinstance(error, KafkaError)
        self.outcomes.append(error)
        super().fail(error)

    @property
    def is_given(self) -> bool:
        return bool(self.outcomes)

    @property
    def outcome(self) -> Response | KafkaError:
        (outcome,) = self.outcomes
        return outcome


class MemoryShard(Generic[M]):
    """Commits all records at once, unless `is_behind` is set, or `rejection`, which fails every append."""

    def __init__(self, make: Callable[[], M], now_ms: int = 1_700_000_000_000) -> None:
        self._make = make
        self.machine = make()
        self.now_ms = now_ms
        """Wall clock, which a test may set without advancing time."""
        self.monotonic_ms = now_ms
        self.log: list[WrittenStep | WrittenEndMarker] = []
        self.timers: dict[Hashable, int] = {}
        """Deadline of each timer, by the monotonic clock."""
        self.rejection: KafkaError | None = None
        self.is_behind = False
        """Replicas do not follow: steps with records, or that read state, wait for `commit`."""
        self._uncommitted: list[Effects] = []
        self.perform(lambda machine, effects: machine.on_loaded(effects))

    def perform(self, step: Callable[[M, Effects], None]) -> Effects:
        effects = Effects(self.now_ms, self.monotonic_ms)
        step(self.machine, effects)
        return self._carry_out(effects)

    def _carry_out(self, effects: Effects) -> Effects:
        if effects.records and self.rejection is not None:
            return self._reject(effects, self.rejection)
        if effects.records:
            self.log.append(WrittenStep(tuple(effects.records), effects.producer))
            for record in effects.records:
                self.machine.replay(record, effects.producer)
        self._set_timers(effects)
        if self.is_behind and (effects.records or effects.is_read_of_state):
            self._uncommitted.append(effects)
        else:
            self._finish(effects)
        return effects

    def commit(self) -> None:
        """The replicas have caught up."""
        self.is_behind = False
        uncommitted, self._uncommitted = self._uncommitted, []
        for effects in uncommitted:
            self._finish(effects)

    def _finish(self, effects: Effects) -> None:
        for reply, outcome in effects.responses:
            reply.complete(outcome)
        for step in effects.after_commit:
            self.perform(lambda _, later, step=step: step(later))  # type: ignore[misc]

    def _reject(self, effects: Effects, error: KafkaError) -> Effects:
        if effects.on_rejected is None:
            for reply, _ in effects.responses:
                reply.complete(error)
            self._set_timers(effects)
            return effects
        instead = Effects(self.now_ms, self.monotonic_ms)
        effects.on_rejected(error, instead)
        return self._carry_out(instead)

    def _set_timers(self, effects: Effects) -> None:
        for timer in effects.timers:
            if isinstance(timer, CancelTimer):
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = self.monotonic_ms + timer.delay_ms

    def end_transaction(self, producer: Producer, *, is_committed: bool) -> None:
        self.log.append(WrittenEndMarker(producer, is_committed))
        self.machine.replay_end_marker(producer, is_committed=is_committed)

    def advance(self, ms: int) -> None:
        """Advance time and fire due timers in order."""
        end_ms = self.monotonic_ms + ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms]:
            at_ms, key = min(due, key=lambda timer: timer[0])
            del self.timers[key]
            self._pass_until(at_ms)
            self.perform(lambda machine, effects, key=key: machine.on_timer(key, effects))  # type: ignore[misc]
        self._pass_until(end_ms)

    def _pass_until(self, at_ms: int) -> None:
        passed_ms = max(at_ms - self.monotonic_ms, 0)
        self.now_ms += passed_ms
        self.monotonic_ms += passed_ms

    def reloaded(self) -> "MemoryShard[M]":
        """A shard with the same records, replayed by a new machine, as after a failover."""
        other = MemoryShard[M].__new__(MemoryShard)
        other._make, other.machine = self._make, self._make()
        other.now_ms, other.monotonic_ms = self.now_ms, self.monotonic_ms
        other.log, other.timers, other.rejection = list(self.log), {}, None
        other.is_behind, other._uncommitted = False, []
        for entry in self.log:
            if isinstance(entry, WrittenEndMarker):
                other.machine.replay_end_marker(entry.producer, is_committed=entry.is_committed)
            else:
                for record in entry.records:
                    other.machine.replay(record, entry.producer)
        other.perform(lambda machine, effects: machine.on_loaded(effects))
        return other
