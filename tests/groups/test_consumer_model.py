"""Consumer groups under everything that may happen, in any order: no partition has two owners, nobody starves."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.groups.consumer_groups import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    Cluster,
    Coordinator,
    assignment_in,
    durable,
    listed,
)
from tidelog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tidelog.groups.consumer import assignors, drafts, reconciliation, records
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.consumer.records import write_current_assignment
from tidelog.groups.group import GroupSettings

TOPICS = ("a", "b", "c")
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"subscribed_topic_names": ["a"], "subscribed_topic_regex": ""},
    {"subscribed_topic_names": ["a", "b"], "subscribed_topic_regex": ""},
    {"subscribed_topic_names": ["b", "c"], "subscribed_topic_regex": ""},
    {"subscribed_topic_names": [], "subscribed_topic_regex": "[ab]"},
    {"subscribed_topic_names": ["c"], "subscribed_topic_regex": "b|c"},
]
WANTED = [{"a"}, {"a", "b"}, {"b", "c"}, {"a", "b"}, {"b", "c"}]
REJOIN = (FencedMemberEpoch, UnknownMemberId, FencedInstanceId, GroupIdNotFound)
MAX_MEMBERS = 5


class Client:
    """A consumer as KIP-848 describes it: it uses its assignment at once, and gives up the rest."""

    def __init__(self, member_id: str, instance_id: str | None, subscription: int) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.subscription = subscription
        self.epoch = 0
        self.assigned: set[tuple[bytes, int]] = set()
        self.used: set[tuple[bytes, int]] = set()
        self.is_unsure = True
        """An answer was lost: it sends all its fields."""
        self.has_news = False
        """It has given something up, or taken it, and not said so."""
        self.is_dead = False

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self.is_unsure or self.epoch == 0:
            fields |= {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topic_partitions": listed(self.used)}
            fields |= SUBSCRIPTIONS[self.subscription]
        elif self.has_news:
            fields |= {"topic_partitions": listed(self.used)}
        return fields

    def on_response(self, response: Any) -> None:
        assert response.member_epoch >= self.epoch, "its epoch went back"
        self.epoch = response.member_epoch
        self.is_unsure = self.has_news = False
        partitions = assignment_in(response)
        if partitions is not None:
            self.has_news = partitions != self.used
            self.assigned = partitions
            self.used |= partitions

    def give_up(self) -> None:
        if self.used != self.assigned:
            self.used &= self.assigned
            self.has_news = True

    def start_again(self) -> None:
        self.epoch, self.is_unsure = 0, True
        self.assigned, self.used = set(), set()


class ConsumerGroupModel(RuleBasedStateMachine):
    @initialize(subscriptions=st.lists(st.integers(0, len(SUBSCRIPTIONS) - 1), min_size=1, max_size=3))
    def begin(self, subscriptions: list[int]) -> None:
        self.cluster = Cluster()
        for name in TOPICS[:2]:
            self.cluster.create_topic(name, 3)
        never_ms = 10**12
        self.coordinator = Coordinator(self.cluster, GroupSettings(offsets_retention_check_interval_ms=never_ms))
        self.clients: dict[str, Client] = {}
        self.client_count = 0
        self.epochs = (0, 0)
        for subscription in subscriptions:
            self.join(subscription, None)

    # -- what may happen

    @precondition(lambda self: self.alive_count() < MAX_MEMBERS)
    @rule(subscription=st.integers(0, len(SUBSCRIPTIONS) - 1), instance_id=st.sampled_from([None, None, "i1", "i2"]))
    def join(self, subscription: int, instance_id: str | None) -> None:
        self.client_count += 1
        client = Client(f"m{self.client_count}", instance_id, subscription)
        self.clients[client.member_id] = client
        self.send(client)
        if client.epoch == 0:
            del self.clients[client.member_id]

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_lost=st.booleans(), is_rejected=st.booleans())
    def heartbeat(self, data: st.DataObject, is_lost: bool, is_rejected: bool) -> None:
        client = self.draw(data)
        if client is not None:
            self.send(client, is_lost=is_lost, is_rejected=is_rejected and is_lost)

    @rule(is_giving_up=st.booleans())
    def go_on(self, is_giving_up: bool) -> None:
        for client in self.clients.values():
            if not client.is_dead:
                self.send(client)
                if is_giving_up:
                    client.give_up()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        client = self.draw(data)
        if client is not None:
            client.give_up()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=st.integers(0, len(SUBSCRIPTIONS) - 1))
    def subscribe(self, data: st.DataObject, subscription: int) -> None:
        client = self.draw(data)
        if client is not None:
            client.subscription, client.is_unsure = subscription, True

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), is_static_leave=st.booleans())
    def leave(self, data: st.DataObject, is_static_leave: bool) -> None:
        client = self.draw(data)
        if client is None:
            return
        epoch = -2 if is_static_leave and client.instance_id is not None else -1
        outcome = self.coordinator.heartbeat(client.member_id, epoch, instance_id=client.instance_id)
        assert not isinstance(outcome, KafkaError) or isinstance(outcome, REJOIN), outcome
        del self.clients[client.member_id]

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        client = self.draw(data)
        if client is not None:
            client.is_dead = True

    @rule(ms=st.sampled_from([100, 100, 5_000, 12_000]))
    def let_time_pass(self, ms: int) -> None:
        self.coordinator.shard.advance(ms)

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 7))
    def make_or_grow_topic(self, name: str, count: int) -> None:
        topic = self.cluster.image.topics.get(name)
        if topic is None:
            self.cluster.create_topic(name, count)
        elif count > len(topic.partitions):
            self.cluster.grow_topic(name, count)

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self.cluster.delete_topic(name)

    @rule()
    def fail_over(self) -> None:
        before = self.group()
        self.coordinator.fail_over()
        after = self.group()
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert durable(after) == durable(before)

    @rule()
    def come_to_rest(self) -> None:
        """Everybody does what it should, and the dead are missed: all is given to somebody, evenly."""
        for _ in range(6):
            self.everybody_goes_on()
            self.coordinator.shard.advance(REBALANCE_TIMEOUT_MS - 1)
        for _ in range(4 * (MAX_MEMBERS + 1)):
            self.everybody_goes_on()
            self.coordinator.shard.advance(1_000)
        self.clients = {
            key: client for key, client in self.clients.items() if not client.is_dead and not self.is_replaced(client)
        }
        wanted: set[str] = set().union(*(WANTED[client.subscription] for client in self.clients.values()))
        owners = Counter(partition for client in self.clients.values() for partition in client.used)
        assert owners == Counter(self.cluster.partitions_of(*wanted))
        self.check_balance()
        group = self.group()
        assert group is None or group.state_name in ("Stable", "Empty")

    # -- helpers

    def alive_count(self) -> int:
        return sum(not client.is_dead for client in self.clients.values())

    def is_replaced(self, client: Client) -> bool:
        """Whether it was missed, and another client has its static membership, so that it cannot join again."""
        return client.epoch == 0 and any(
            other.instance_id == client.instance_id is not None and other.epoch > 0 and not other.is_dead
            for other in self.clients.values()
        )

    def draw(self, data: st.DataObject) -> Client | None:
        alive = sorted(key for key, client in self.clients.items() if not client.is_dead)
        return self.clients[data.draw(st.sampled_from(alive))] if alive else None

    def group(self) -> ConsumerGroup | None:
        group = self.coordinator.shard.machine.groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def everybody_goes_on(self) -> None:
        for client in self.clients.values():
            if not client.is_dead:
                client.give_up()
                self.send(client)

    def send(self, client: Client, *, is_lost: bool = False, is_rejected: bool = False) -> None:
        self.coordinator.shard.rejection = CoordinatorNotAvailable() if is_rejected else None
        outcome = self.coordinator.heartbeat(client.member_id, client.epoch, **client.fields())
        self.coordinator.shard.rejection = None
        if is_lost or isinstance(outcome, CoordinatorNotAvailable):
            client.is_unsure = True
        elif isinstance(outcome, REJOIN):
            client.start_again()
        elif not isinstance(outcome, UnreleasedInstanceId):
            assert not isinstance(outcome, KafkaError), outcome
            client.on_response(outcome)

    def check_balance(self) -> None:
        by_wish: dict[frozenset[str], list[int]] = {}
        for client in self.clients.values():
            by_wish.setdefault(frozenset(WANTED[client.subscription]), []).append(len(client.used))
        for sizes in by_wish.values():
            assert max(sizes) - min(sizes) <= 1, sizes

    # -- what must always hold

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        group = self.group()
        members = {} if group is None else group.members
        used = Counter(
            partition for client in self.clients.values() if client.member_id in members for partition in client.used
        )
        assert not used or max(used.values()) == 1, used

    @invariant()
    def epochs_grow(self) -> None:
        group = self.group()
        if group is not None:
            assert group.epoch >= self.epochs[0]
            assert group.assignment_epoch >= self.epochs[1]
            assert group.assignment_epoch <= group.epoch
            self.epochs = group.epoch, group.assignment_epoch


ConsumerGroupModel.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40)
TestConsumerGroupModel = ConsumerGroupModel.TestCase


def test_groups_that_are_assigned_now_and_then_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "ASSIGN_AT_ONCE_UP_TO", 0)
    run_state_machine_as_test(ConsumerGroupModel, settings=ConsumerGroupModel.TestCase.settings)


def _steals(self: ConsumerGroup, topic_id: bytes, partition: int) -> None:
    return None


def _believes(owned: Any, holdings: Any) -> bool:
    return False


def _forgets_one(subscribers: Any, counts: Any) -> Any:
    targets = assignors.assign_uniform(subscribers, counts)
    return {
        member_id: {topic: partitions - {0} for topic, partitions in target.items() if partitions - {0}}
        for member_id, target in targets.items()
    }


def _piles_up(subscribers: Any, counts: Any) -> Any:
    first, *others = sorted(subscribers, key=lambda subscriber: len(subscriber.topics), reverse=True)
    hoard = {topic: frozenset(range(counts[topic])) for topic in first.topics}
    return {first.member_id: hoard, **{other.member_id: {} for other in others}}


def _drops_revocations(effects: Any, group_id: str, member: Any) -> None:
    write_current_assignment(effects, group_id, member._replace(revoking={}))


BREAKS = {
    "a partition is taken before it is free": (ConsumerGroup, "owner_of", _steals),
    "a revocation is taken for done": (reconciliation, "_still_owns", _believes),
    "what is to be revoked is not written down": (records, "write_current_assignment", _drops_revocations),
    "a partition is given to nobody": (assignors.ASSIGNORS, "uniform", _forgets_one),
    "one member gets all": (assignors.ASSIGNORS, "uniform", _piles_up),
}


@pytest.mark.parametrize("rule_name", BREAKS)
def test_the_model_notices_when(rule_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken = BREAKS[rule_name]
    if isinstance(owner, dict):
        monkeypatch.setitem(owner, name, broken)
    else:
        monkeypatch.setattr(owner, name, broken)
    quick = hypothesis_settings(
        max_examples=300,
        stateful_step_count=40,
        derandomize=True,
        phases=[Phase.generate],
        database=None,
    )
    with pytest.raises(BaseException) as failure:  # noqa: PT011
        run_state_machine_as_test(ConsumerGroupModel, settings=quick)
    assert isinstance(failure.value, AssertionError | BaseExceptionGroup)
