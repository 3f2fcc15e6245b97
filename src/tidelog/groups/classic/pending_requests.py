"""Pending JoinGroup and SyncGroup requests of a classic group: their responses wait for the other members."""

# Core: no clock, no I/O, no await.

from collections.abc import Iterable

from tidelog.errors import KafkaError, RebalanceInProgress
from tidelog.groups.classic.member import ClassicMember
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.protocol.structs import Response
from tidelog.replicated.machine import Effects, Reply


class _SyncReply:
    """Reply to a SyncGroup that waits for a commit. It sends nothing if the request has failed by then."""

    __slots__ = ("_member", "_reply")

    def __init__(self, member: ClassicMember, reply: Reply) -> None:
        self._member = member
        self._reply = reply

    def complete(self, outcome: Response | KafkaError) -> None:
        if self._member.sync_reply is self._reply:
            self._member.sync_reply = None
            self._reply.complete(outcome)


class PendingRequests:
    """A member has at most one pending request of each kind: a new one fails the one before."""

    def __init__(self) -> None:
        self.join_count = 0
        """Number of members with a pending JoinGroup."""

    def await_join(self, member: ClassicMember, reply: Reply, effects: Effects) -> None:
        self.fail_join(member, RebalanceInProgress("the member has sent another JoinGroup"), effects)
        member.join_reply = reply
        self.join_count += 1

    def take_join_reply(self, member: ClassicMember) -> Reply | None:
        reply, member.join_reply = member.join_reply, None
        if reply is not None:
            self.join_count -= 1
        return reply

    def fail_join(self, member: ClassicMember, error: KafkaError, effects: Effects) -> None:
        reply = self.take_join_reply(member)
        if reply is not None:
            effects.fail(reply, error)

    def await_sync(self, member: ClassicMember, reply: Reply, effects: Effects) -> None:
        self.fail_sync(member, RebalanceInProgress("the member has sent another SyncGroup"), effects)
        member.sync_reply = reply

    def answer_sync(self, member: ClassicMember, response: SyncGroupResponse, effects: Effects) -> None:
        """Answer when the assignment is committed, unless the request has failed by then.

        Then the member was removed or the group rebalances, and its partitions may belong to another member.
        """
        assert member.sync_reply is not None
        effects.answer(_SyncReply(member, member.sync_reply), response)

    def fail_sync(self, member: ClassicMember, error: KafkaError, effects: Effects) -> None:
        reply, member.sync_reply = member.sync_reply, None
        if reply is not None:
            effects.fail(reply, error)

    def fail(self, members: Iterable[ClassicMember], error: KafkaError, effects: Effects) -> None:
        """Fail all pending requests of these members."""
        for member in members:
            self.fail_join(member, error, effects)
            self.fail_sync(member, error, effects)
