"""Classic groups with members that join, sync, fall silent, come back and leave in any order."""

from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.groups.classic_groups import DELAY_MS, GROUP, REBALANCE_MS, SESSION_MS, Answered, Coordinator, leaving
from tidelog.errors import (
    NO_ERROR,
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from tidelog.groups.classic import protocol
from tidelog.groups.classic.group import ClassicGroup
from tidelog.groups.classic.rebalancing import Rebalances
from tidelog.groups.classic.records import write_group
from tidelog.groups.classic.states import GroupState
from tidelog.protocol.messages.join_group import JoinGroupResponse
from tidelog.protocol.messages.sync_group import SyncGroupResponse
from tidelog.replicated.machine import Effects

CLIENTS = st.integers(0, 4)
STATIC_FROM = 3
TOPICS = st.sampled_from([b"t", b"t,u"])
RESET = (UnknownMemberId.code, FencedInstanceId.code)
"""Upon which a consumer forgets who it was."""


class Client:
    """A consumer: does what consumers do, but when the test wants it."""

    def __init__(self, number: int) -> None:
        self.instance = f"i{number}" if number >= STATIC_FROM else None
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.members: list[str] = []
        self.assignment: bytes | None = None
        self.join: Answered | None = None
        self.sync: Answered | None = None

    def forget(self) -> None:
        self.member_id, self.generation, self.assignment, self.is_leader = "", -1, None, False


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.clients = [Client(number) for number in range(5)]
        self.asked: list[Answered] = []
        self.latest_generation = 0
        self.leaders: dict[int, str] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}
        """By generation, as its leader has decided."""

    # -- what members do

    @rule(number=CLIENTS, topics=TOPICS)
    def join(self, number: int, topics: bytes) -> None:
        client = self.clients[number]
        self._send_join(client, topics)
        self._hear()
        if client.join is None and client.member_id and client.generation == -1:
            self._send_join(client, topics)
            self._hear()

    def _send_join(self, client: Client, topics: bytes) -> None:
        client.sync = None
        client.join = self._ask(
            self.coordinator.join(client.member_id, instance=client.instance, protocols=(("range", topics),))
        )

    @rule(number=CLIENTS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.join is not None or client.generation < 0:
            return
        assignments = {}
        if client.is_leader:
            assignments = {each: f"{each}@{client.generation}".encode() for each in client.members}
        was_assigned = client.generation in self.assigned
        client.sync = self._ask(
            self.coordinator.sync(client.member_id, client.generation, assignments, instance=client.instance)
        )
        if client.is_leader and not was_assigned and client.sync.is_given and client.sync.error == NO_ERROR:
            self.assigned[client.generation] = assignments
        self._hear()

    @rule(numbers=st.sets(CLIENTS, min_size=2))
    def gather(self, numbers: set[int]) -> None:
        """Several join at about the same time, and so may share a generation."""
        for number in sorted(numbers):
            self.join(number, b"t")
        self.wait(DELAY_MS)

    @rule(is_leader=st.booleans())
    def all_sync(self, is_leader: bool) -> None:
        """All followers, or the leader."""
        for number, client in enumerate(self.clients):
            if client.is_leader is is_leader:
                self.sync(number)

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.generation >= 0:
            code = self.coordinator.heartbeat(client.member_id, client.generation, instance=client.instance)
            assert code in (NO_ERROR, RebalanceInProgress.code, IllegalGeneration.code, *RESET)
            if code in RESET:
                client.forget()

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id:
            self._ask(self.coordinator.leave(leaving(client.member_id, client.instance)))
            client.forget()
            self._hear()

    @rule(number=CLIENTS)
    def crash(self, number: int) -> None:
        """It is not heard of again under this id."""
        client = self.clients[number]
        client.forget()
        client.join = client.sync = None

    # -- what happens to the coordinator

    @rule(ms=st.sampled_from([1, DELAY_MS, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.coordinator.shard.advance(ms)
        self._hear()

    @rule()
    def cannot_write(self) -> None:
        self.coordinator.shard.rejection = CoordinatorNotAvailable()

    @precondition(lambda self: self.coordinator.shard.rejection is not None)
    @rule()
    def can_write(self) -> None:
        self.coordinator.shard.rejection = None

    @rule()
    def move(self) -> None:
        """Another broker takes over. Generations that were never assigned are forgotten with the old one."""
        self.coordinator.shard.perform(lambda machine, effects: machine.on_unloaded(effects))
        self._hear()
        assert all(answered.is_given for answered in self.asked), "nobody waits for a coordinator that is gone"
        self.coordinator = self.coordinator.reloaded()
        group = self._group()
        known = 0 if group is None else group.generation
        self.latest_generation = known
        self.leaders = {generation: who for generation, who in self.leaders.items() if generation <= known}
        for client in self.clients:
            if client.generation > known:
                client.generation, client.assignment = -1, None

    # -- what is heard

    def _ask(self, answered: Answered) -> Answered:
        self.asked.append(answered)
        return answered

    def _hear(self) -> None:
        for client in self.clients:
            self._hear_join(client)
            self._hear_sync(client)

    def _hear_join(self, client: Client) -> None:
        if client.join is None or not client.join.is_given:
            return
        outcome = client.join.reply.outcome
        client.join = None
        if isinstance(outcome, KafkaError):
            client.forget()
            return
        assert isinstance(outcome, JoinGroupResponse)
        client.member_id = outcome.member_id
        if outcome.error_code != NO_ERROR:
            client.generation = -1
            return
        client.generation, client.assignment = outcome.generation_id, None
        client.members = [member.member_id for member in outcome.members]
        client.is_leader = outcome.leader == outcome.member_id and not outcome.skip_assignment
        if client.is_leader:
            assert client.member_id in client.members
            former = self.leaders.setdefault(client.generation, client.member_id)
            assert former == client.member_id, "one leader for each generation"

    def _hear_sync(self, client: Client) -> None:
        if client.sync is None or not client.sync.is_given:
            return
        outcome = client.sync.reply.outcome
        client.sync = None
        if isinstance(outcome, SyncGroupResponse):
            client.assignment = outcome.assignment
        elif isinstance(outcome, KafkaError) and outcome.code in RESET:
            client.forget()

    def _group(self) -> ClassicGroup | None:
        group = self.coordinator.shard.machine.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    # -- what must hold

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        assert all(len(answered.reply.outcomes) <= 1 for answered in self.asked)

    @invariant()
    def every_unanswered_member_has_a_timer(self) -> None:
        group = self._group()
        waiting = (
            [] if group is None else [each for each in group.members.values() if each.join_reply or each.sync_reply]
        )
        replies = {id(each.join_reply or each.sync_reply) for each in waiting}
        assert replies == {id(answered.reply) for answered in self.asked if not answered.is_given}
        if waiting:
            purposes = {key[1] for key in self.coordinator.shard.timers}  # type: ignore[index]
            assert purposes & {"join", "sync"}

    @invariant()
    def generations_never_go_back(self) -> None:
        group = self._group()
        if group is not None:
            assert group.generation >= self.latest_generation
            self.latest_generation = group.generation

    @invariant()
    def members_of_a_stable_generation_have_assignments_of_it(self) -> None:
        group = self._group()
        if group is None or group.state is not GroupState.STABLE:
            return
        decided = set(self.assigned[group.generation].values())
        assert all(member.assignment in decided for member in group.members.values())
        for client in self.clients:
            if client.generation == group.generation and client.assignment is not None:
                assert client.assignment in decided

    @invariant()
    def members_of_a_stable_group_are_watched(self) -> None:
        group = self._group()
        if group is not None and group.state is GroupState.STABLE:
            keys = self.coordinator.shard.timers
            assert all(("classic", "session", GROUP, member_id) in keys for member_id in group.members)

    @invariant()
    def new_coordinator_has_the_same_durable_state(self) -> None:
        group = self._group()
        if group is None or group.state is not GroupState.STABLE:
            return
        other: Any = self.coordinator.reloaded().shard.machine.groups[GROUP]
        assert facts(other) == facts(group)

    @invariant()
    def counters_are_right(self) -> None:
        group = self._group()
        if group is not None:
            assert group.requests.join_count == sum(member.join_reply is not None for member in group.members.values())
            static = {each.instance_id: each.member_id for each in group.members.values() if each.is_static}
            assert group.members.static_ids == static
            assert (group.members.leader_id in group.members) == bool(group.members)

    def teardown(self) -> None:
        """Left alone, everybody who waits is answered."""
        self.coordinator.shard.rejection = None
        self.coordinator.shard.advance(10 * REBALANCE_MS)
        assert all(answered.is_given for answered in self.asked)
        group = self._group()
        assert group is None or group.is_empty


def facts(group: ClassicGroup) -> dict[str, Any]:
    return {
        "state": group.state,
        "since": group.state_timestamp_ms,
        "generation": group.generation,
        "protocol": (group.protocol_type, group.protocol_name),
        "leader": group.members.leader_id,
        "subscribed": group.subscribed_topics,
        "static": group.members.static_ids,
        "members": [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        ],
    }


SETTINGS = settings(max_examples=80, stateful_step_count=40)
SEARCH = settings(SETTINGS, max_examples=200, derandomize=True, phases=[Phase.generate])


def test_any_life_of_a_group_keeps_its_promises() -> None:
    run_state_machine_as_test(Life, settings=SETTINGS)


def test_model_notices_members_that_are_left_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(self: ClassicGroup, error: KafkaError, effects: Effects) -> None:
        for member in self.members.values():
            member.sync_reply = None

    monkeypatch.setattr(ClassicGroup, "drop_assignments", drop)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Life, settings=SEARCH)


def test_model_notices_assignments_that_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "write_group", lambda group, _, effects: write_group(group, {}, effects))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Life, settings=SEARCH)


def test_model_notices_members_that_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "keep_alive", lambda *_: None)
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(Life, settings=SEARCH)


def test_model_notices_a_rebalance_that_nobody_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebalances, "on_join_timer", lambda *_: None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Life, settings=SEARCH)
