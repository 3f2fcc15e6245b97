"""The many replies of one step leave in slices."""

import asyncio
from itertools import pairwise

from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.replicated.machine import ReplyOutcome
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.replicated.replies import MAX_AT_ONCE, Replies
from tidelog.runtime.clock import ManualClock
from tidelog.runtime.turns import CLIENT_WORK_PER_TURN_S, Turns


class SlowReply(MemoryReply):
    """Takes a millisecond to send."""

    __slots__ = ("clock",)

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def resolve(self, value: object) -> None:
        super().resolve(value)
        self.clock.advance(1)


def test_other_work_runs_between_the_replies_of_a_large_step() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        clock.advance(1000)
        replies = Replies(Turns(clock.monotonic))
        waiting = [SlowReply(clock) for _ in range(1000)]
        replies.give([ReplyOutcome(reply, HeartbeatResponse()) for reply in waiting])
        given = [0]
        while given[-1] < len(waiting):
            await asyncio.sleep(0)
            given.append(sum(reply.is_given for reply in waiting))
        steps = [after - before for before, after in pairwise(given)]
        assert max(steps) <= 2 * CLIENT_WORK_PER_TURN_S * 1000
        assert [reply.is_given for reply in waiting] == [True] * 1000

    asyncio.run(scenario())


def test_few_replies_are_given_at_once() -> None:
    waiting = [MemoryReply() for _ in range(MAX_AT_ONCE)]
    Replies(Turns(ManualClock().monotonic)).give([ReplyOutcome(reply, HeartbeatResponse()) for reply in waiting])
    assert all(reply.is_given for reply in waiting)
