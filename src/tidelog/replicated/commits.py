"""What waits until everything that a shard has written is committed: answers, in the order of the log."""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from tidelog.errors import KafkaError
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Answer, Reply

logger = logging.getLogger(__name__)


class Uncommitted:
    """One step's share of the log, up to `end_offset`, and what follows once it is committed."""

    __slots__ = ("after_commit", "answers", "due_s", "end_offset")

    def __init__(
        self, end_offset: int, answers: Sequence[Answer], after_commit: Sequence[Callable[[], None]], due_s: float
    ) -> None:
        self.end_offset = end_offset
        self.answers = answers
        self.after_commit = after_commit
        self.due_s = due_s

    def finish(self) -> None:
        give(self.answers)
        for begin in self.after_commit:
            try:
                begin()
            except Exception:
                logger.exception("could not do what follows a commit")

    def fail(self, error: KafkaError) -> None:
        """Nobody waits longer; what follows the commit still does."""
        answers, self.answers = self.answers, ()
        fail(answers, error)


class Commits:
    """First in, first out, by the high watermark."""

    __slots__ = ("_awaited", "_is_finishing", "_queue")

    def __init__(self) -> None:
        self._queue: deque[Uncommitted] = deque()
        self._awaited: deque[Uncommitted] = deque()
        """Those of the queue that somebody waits for, in the same order, which is that of their deadlines, too."""
        self._is_finishing = False

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, uncommitted: Uncommitted) -> None:
        self._queue.append(uncommitted)
        if uncommitted.answers:
            self._awaited.append(uncommitted)

    def is_due(self, high_watermark: int) -> bool:
        return bool(self._queue) and self._queue[0].end_offset <= high_watermark

    @property
    def next_due_s(self) -> float | None:
        """When the first answer runs out of time."""
        return self._awaited[0].due_s if self._awaited else None

    def finish(self, high_watermark: Callable[[], int]) -> None:
        """Whoever is told may come back with more to write: that waits for its turn."""
        if self._is_finishing:
            return
        self._is_finishing = True
        try:
            while self.is_due(high_watermark()):
                self._take().finish()
        finally:
            self._is_finishing = False

    def _take(self) -> Uncommitted:
        first = self._queue.popleft()
        if self._awaited and self._awaited[0] is first:
            self._awaited.popleft()
        return first

    def fail_overdue(self, now_s: float, error: KafkaError) -> None:
        while self._awaited and self._awaited[0].due_s <= now_s:
            self._awaited.popleft().fail(error)

    def fail_all(self, error: KafkaError) -> None:
        """They will never be known to be committed here."""
        queue, self._queue, self._awaited = self._queue, deque(), deque()
        for uncommitted in queue:
            uncommitted.fail(error)


def give(answers: Sequence[Answer]) -> None:
    for reply, outcome in answers:
        _complete(reply, outcome)


def fail(answers: Sequence[Answer], error: KafkaError) -> None:
    for reply, _ in answers:
        _complete(reply, error)


def _complete(reply: Reply, outcome: Response | KafkaError) -> None:
    """A mistake of one listener must not cost the others their answers."""
    try:
        reply.complete(outcome)
    except Exception:
        logger.exception("could not give an answer of a coordinator")
