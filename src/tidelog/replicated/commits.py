"""Uncommitted steps of a shard, in log order: their replies wait for the high watermark."""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tidelog.errors import KafkaError
from tidelog.replicated.machine import ReplyOutcome
from tidelog.replicated.replies import complete

logger = logging.getLogger(__name__)

Give: TypeAlias = Callable[[Sequence[ReplyOutcome]], None]


class Uncommitted:
    """Records of one step, up to `end_offset`, with the replies and callbacks that follow their commit."""

    __slots__ = ("after_commit", "due_s", "end_offset", "responses")

    def __init__(
        self,
        end_offset: int,
        responses: Sequence[ReplyOutcome],
        after_commit: Sequence[Callable[[], None]],
        due_s: float,
    ) -> None:
        self.end_offset = end_offset
        self.responses = responses
        self.after_commit = after_commit
        self.due_s = due_s

    def finish(self, give: Give) -> None:
        give(self.responses)
        for begin in self.after_commit:
            try:
                begin()
            except Exception:
                logger.exception("callback after commit failed")

    def fail(self, error: KafkaError) -> None:
        """Fail the replies. The callbacks still run after the commit."""
        responses, self.responses = self.responses, ()
        fail(responses, error)


class Commits:
    """Queue of uncommitted steps, completed in order as the high watermark advances."""

    __slots__ = ("_awaited", "_give", "_is_finishing", "_queue")

    def __init__(self, give: Give) -> None:
        self._give = give
        self._queue: deque[Uncommitted] = deque()
        self._awaited: deque[Uncommitted] = deque()
        """Steps of the queue with replies, in the same order, which is also the order of their deadlines."""
        self._is_finishing = False

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, uncommitted: Uncommitted) -> None:
        self._queue.append(uncommitted)
        if uncommitted.responses:
            self._awaited.append(uncommitted)

    def is_due(self, high_watermark: int) -> bool:
        return bool(self._queue) and self._queue[0].end_offset <= high_watermark

    @property
    def next_due_s(self) -> float | None:
        """Deadline of the first reply."""
        return self._awaited[0].due_s if self._awaited else None

    def finish(self, high_watermark: Callable[[], int]) -> None:
        """Complete steps up to the high watermark. A listener may write more: the outer call completes that, too."""
        if self._is_finishing:
            return
        self._is_finishing = True
        try:
            while self.is_due(high_watermark()):
                self._pop_first().finish(self._give)
        finally:
            self._is_finishing = False

    def _pop_first(self) -> Uncommitted:
        first = self._queue.popleft()
        if self._awaited and self._awaited[0] is first:
            self._awaited.popleft()
        return first

    def fail_overdue(self, now_s: float, error: KafkaError) -> None:
        while self._awaited and self._awaited[0].due_s <= now_s:
            self._awaited.popleft().fail(error)

    def fail_all(self, error: KafkaError) -> None:
        """Fail all: this broker will not learn whether they were committed."""
        queue, self._queue, self._awaited = self._queue, deque(), deque()
        for uncommitted in queue:
            uncommitted.fail(error)


def fail(responses: Sequence[ReplyOutcome], error: KafkaError) -> None:
    for reply, _ in responses:
        complete(reply, error)
