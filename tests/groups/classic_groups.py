"""Classic groups with their records in memory, and members that speak to them."""

from typing import Any, TypeVar

from tidelog.errors import NO_ERROR, KafkaError
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.protocol import ClassicProtocol
from tidelog.groups.classic.states import GroupState
from tidelog.groups.group import Caller, Group, GroupSettings
from tidelog.protocol.internal.offset_records import GroupMetadataValue
from tidelog.protocol.internal.versioned import decode_versioned
from tidelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.replicated.machine import Effects, Producer, StateRecord
from tidelog.replicated.memory_shard import MemoryReply, MemoryShard, WrittenStep
from tidelog.runtime.randomness import Randomness, SeededRandomness

R = TypeVar("R", JoinGroupResponse, SyncGroupResponse, LeaveGroupResponse)

GROUP = "readers"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
RANGE = (("range", b"wants t"),)


class ClassicMachine:
    """Nothing but classic groups."""

    def __init__(self, settings: GroupSettings, randomness: Randomness) -> None:
        self.groups: dict[str, Group] = {}
        self.classic = ClassicProtocol(self.groups, lambda: settings, randomness)

    def replay(self, record: StateRecord, producer: Producer | None) -> None:
        self.classic.replay_group_metadata(record)

    def replay_end_marker(self, producer: Producer, *, is_committed: bool) -> None:
        raise AssertionError("no transactions here")

    def on_loaded(self, effects: Effects) -> None:
        self.classic.on_loaded(effects)

    def on_timer(self, key: Any, effects: Effects) -> None:
        self.classic.on_timer(key, effects)

    def on_unloaded(self, effects: Effects) -> None:
        self.classic.on_unloaded(effects)

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group


class Answered:
    """What a request gets, once it gets it."""

    def __init__(self) -> None:
        self.reply = MemoryReply()

    @property
    def is_given(self) -> bool:
        return self.reply.is_given

    @property
    def error(self) -> int:
        outcome: Any = self.reply.outcome
        code: int = outcome.code if isinstance(outcome, KafkaError) else outcome.error_code
        return code

    @property
    def joined(self) -> JoinGroupResponse:
        return self._good(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        return self._good(SyncGroupResponse)

    @property
    def left(self) -> LeaveGroupResponse:
        return self._good(LeaveGroupResponse)

    @property
    def member_id(self) -> str:
        """Also of the answer that only gives one."""
        outcome = self.reply.outcome
        assert isinstance(outcome, JoinGroupResponse)
        return outcome.member_id

    def _good(self, kind: type[R]) -> R:
        outcome = self.reply.outcome
        assert isinstance(outcome, kind), outcome
        assert self.error == NO_ERROR, outcome
        return outcome


class Coordinator:
    """Sends what members send. Requests have their newest versions unless a test names another."""

    def __init__(self, shard: MemoryShard[ClassicMachine] | None = None, **settings: Any) -> None:
        known = GroupSettings(**{"group_initial_rebalance_delay_ms": DELAY_MS, **settings})
        randomness = SeededRandomness(7)  # the same for all coordinators: member ids never come twice
        self.shard = shard or MemoryShard(lambda: ClassicMachine(known, randomness))

    @property
    def group(self) -> ClassicGroup:
        return self.shard.machine.group()

    def written(self) -> list[GroupMetadataValue | None]:
        return [
            None if record.value is None else decode_versioned(GroupMetadataValue, record.value)
            for entry in self.shard.log
            if isinstance(entry, WrittenStep)
            for record in entry.records
        ]

    def join(
        self,
        member_id: str = "",
        *,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        group_id: str = GROUP,
        client_id: str = "client",
        version: int = 9,
    ) -> Answered:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
        )
        answered = Answered()
        caller = Caller(client_id, "/127.0.0.1", version)
        self.shard.perform(lambda machine, effects: machine.classic.join(request, caller, answered.reply, effects))
        return answered

    def enter(self, **options: Any) -> tuple[str, Answered]:
        """Get a member id, and join with it."""
        member_id = self.join(**options).member_id
        return member_id, self.join(member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        group_id: str = GROUP,
        version: int = 5,
    ) -> Answered:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(each, value) for each, value in (assignments or {}).items()],
        )
        answered = Answered()
        caller = Caller("client", "/127.0.0.1", version)
        self.shard.perform(lambda machine, effects: machine.classic.sync(request, caller, answered.reply, effects))
        return answered

    def heartbeat(self, member_id: str, generation: int, *, instance: str | None = None, group_id: str = GROUP) -> int:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        answered = Answered()
        caller = Caller("client", "/127.0.0.1", 4)
        self.shard.perform(lambda machine, effects: machine.classic.heartbeat(request, caller, answered.reply, effects))
        assert isinstance(answered.reply.outcome, (HeartbeatResponse, KafkaError))
        return answered.error

    def leave(self, *members: MemberIdentity, member_id: str = "", group_id: str = GROUP, version: int = 5) -> Answered:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id, members=list(members))
        answered = Answered()
        caller = Caller("client", "/127.0.0.1", version)
        self.shard.perform(lambda machine, effects: machine.classic.leave(request, caller, answered.reply, effects))
        return answered

    def stable(self, count: int, **options: Any) -> list[str]:
        """A stable group of so many members, the leader first. Each is assigned its own id."""
        members = [self.enter(**options) for _ in range(count)]
        self.shard.advance(DELAY_MS * (count + 1))
        self.assign(*(member_id for member_id, _ in members))
        return [member_id for member_id, _ in members]

    def static(self, *instances: str, **options: Any) -> list[str]:
        """A stable group of these static members, the leader first."""
        for instance in instances:
            self.join(instance=instance, **options)
        self.shard.advance(DELAY_MS * (len(instances) + 1))
        member_ids = list(self.group.members)
        self.assign(*member_ids)
        return member_ids

    def two_that_have_joined(self) -> tuple[str, str]:
        """Leader and follower, neither of them with an assignment."""
        leader, _ = self.enter()
        follower, _ = self.enter()
        self.shard.advance(DELAY_MS * 2)
        assert self.group.state is GroupState.COMPLETING_REBALANCE
        return leader, follower

    def assign(self, *member_ids: str) -> None:
        """All sync, the leader with assignments."""
        assignments = {member_id: member_id.encode() for member_id in member_ids}
        leader = self.group.members.leader_id
        for member_id in member_ids:
            instance = self.group.members[member_id].instance_id
            given = assignments if member_id == leader else {}
            self.sync(member_id, self.group.generation, given, instance=instance)

    def reloaded(self) -> "Coordinator":
        return Coordinator(self.shard.reloaded())


def leaving(member_id: str = "", instance: str | None = None) -> MemberIdentity:
    return MemberIdentity(member_id=member_id, group_instance_id=instance)
