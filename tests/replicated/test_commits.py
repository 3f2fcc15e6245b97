"""Answers that wait for a commit that takes its time."""

from tidelog.errors import KafkaError, RequestTimedOut
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.replicated.commits import Commits, Uncommitted
from tidelog.replicated.machine import ReplyOutcome
from tidelog.replicated.memory_shard import MemoryReply
from tidelog.replicated.replies import Replies


class Counted(Uncommitted):
    """Knows how often it was looked at."""

    fail_count = 0

    def fail(self, error: KafkaError) -> None:
        self.fail_count += 1
        super().fail(error)


def uncommitted(end_offset: int, *, is_awaited: bool = True) -> tuple[Counted, MemoryReply]:
    reply = MemoryReply()
    responses = [ReplyOutcome(reply, HeartbeatResponse())] if is_awaited else []
    return Counted(end_offset, responses, [], float(end_offset)), reply


def test_an_expired_operation_is_not_checked_again() -> None:
    commits = Commits(Replies(None).give)
    waiting = [uncommitted(number, is_awaited=number % 2 == 1) for number in range(1, 7)]
    for each, _ in waiting:
        commits.add(each)
    for now_s in range(1, 4):
        assert commits.next_due_s == (1.0 if now_s == 1 else 3.0)
        commits.fail_overdue(now_s, RequestTimedOut())
    assert [each.fail_count for each, _ in waiting] == [1, 0, 1, 0, 0, 0]
    assert [reply.is_given for _, reply in waiting] == [True, False, True, False, False, False]
    commits.finish(lambda: 5)
    assert [reply.is_given for _, reply in waiting] == [True, False, True, False, True, False]
    assert commits.next_due_s is None
    assert commits
    commits.finish(lambda: 6)
    assert not commits


def test_a_coordinator_that_leaves_lets_everybody_go_once() -> None:
    commits = Commits(Replies(None).give)
    waiting = [uncommitted(number) for number in range(1, 4)]
    for each, _ in waiting:
        commits.add(each)
    commits.fail_overdue(1.0, RequestTimedOut())
    commits.fail_all(RequestTimedOut())
    commits.fail_overdue(10.0, RequestTimedOut())
    assert [len(reply.outcomes) for _, reply in waiting] == [1, 1, 1]
    assert commits.next_due_s is None
    assert not commits
