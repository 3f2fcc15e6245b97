"""Completion of replies: the many replies of one step, as of a rebalance, are completed in slices.

Their outcomes are decided, and committed where they must be: completing one later is like a slow network.
"""

import logging
from collections import deque
from collections.abc import Sequence

from tidelog.errors import KafkaError
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Completable, ReplyOutcome
from tidelog.runtime.turns import Turns

logger = logging.getLogger(__name__)

MAX_AT_ONCE = 64
"""If a step has more replies, other work runs in between."""


class Replies:
    def __init__(self, turns: Turns | None) -> None:
        """Without `turns` all replies are completed at once."""
        self._turns = turns
        self._waiting: deque[ReplyOutcome] = deque()

    def give(self, responses: Sequence[ReplyOutcome]) -> None:
        if self._turns is None or len(responses) <= MAX_AT_ONCE:
            for reply, outcome in responses:
                complete(reply, outcome)
            return
        if not self._waiting:
            self._turns.queue(self._give_some)
        self._waiting.extend(responses)

    def _give_some(self) -> None:
        """Complete replies until the slice is over."""
        assert self._turns is not None
        waiting = self._waiting
        while waiting:
            complete(*waiting.popleft())
            if waiting and self._turns.is_slice_over():
                self._turns.queue(self._give_some, is_continued=True)
                return


def complete(reply: Completable, outcome: Response | KafkaError) -> None:
    """An error of one listener must not affect the replies of others."""
    try:
        reply.complete(outcome)
    except Exception:
        logger.exception("coordinator reply failed")
