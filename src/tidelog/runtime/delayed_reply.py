"""Delayed replies: delayed operations that resolve a Deferred when they complete."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from tidelog.runtime.deferred import Deferred
from tidelog.runtime.purgatory import DelayedOperation, Purgatory, Watchers

T = TypeVar("T")


class DelayedReply(DelayedOperation, Generic[T]):
    """`on_completed` resolves `reply`. If the reply is abandoned (the client is gone), the operation stops waiting."""

    __slots__ = ("reply",)

    def __init__(self) -> None:
        super().__init__()
        self.reply: Deferred[T] = Deferred()

    def wait_in(self, purgatory: Purgatory, watched: Iterable[Watchers], timeout_s: float) -> Deferred[T]:
        """The caller must have found the operation unsatisfied in the same step."""
        self.reply.on_abandoned = self.abandon
        purgatory.wait(self, watched, timeout_s)
        return self.reply
