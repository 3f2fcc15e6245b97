"""Members of both protocols in one consumer group, in any order: no partition has two owners, nobody starves."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.groups.consumer_groups import REBALANCE_TIMEOUT_MS, Cluster, Coordinator, durable
from tests.groups.test_consumer_migration import ClassicClient
from tests.groups.test_consumer_model import REJOIN, Client
from tidelog.errors import IllegalGeneration, KafkaError, RebalanceInProgress, UnknownMemberId
from tidelog.groups.consumer.group import ConsumerGroup
from tidelog.groups.group import GroupSettings

PARTITIONS = 6
MAX_MEMBERS = 5
TICK_MS = 2_000


class Mixture:
    """A group that never becomes classic, so that every request is answered at once."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster()
        self.topic_id = self.cluster.create_topic("a", PARTITIONS)
        self.coordinator = Coordinator(self.cluster, GroupSettings(group_consumer_migration_policy="upgrade"))
        self.new: list[Client] = []
        self.old: list[ClassicClient] = []
        self.member_count = 0
        self.add_new()

    # -- what may happen

    def happen(self) -> None:
        may_join = len(self.new) + len(self.old) < MAX_MEMBERS
        actions = [self.go_on_new, self.go_on_new, self.give_up, self.go_on_old, self.go_on_old, self.fail_over]
        actions += [self.add_new, self.add_old] if may_join else []
        actions += [self.remove_new] if len(self.new) > 1 else []
        actions += [self.remove_old] if self.old else []
        self.chance.choice(actions)()
        self.coordinator.shard.advance(self.chance.choice([0, 0, 500]))
        self.check()

    def add_new(self) -> None:
        self.member_count += 1
        client = Client(f"new-{self.member_count}", None, 0)
        self.new.append(client)
        self.send(client)

    def add_old(self) -> None:
        client = ClassicClient(self.coordinator, "")
        client.join()
        client.sync()
        self.old.append(client)

    def remove_new(self) -> None:
        client = self.new.pop(self.chance.randrange(len(self.new)))
        self.coordinator.leave(client.member_id)

    def remove_old(self) -> None:
        client = self.old.pop(self.chance.randrange(len(self.old)))
        client.leave()

    def go_on_new(self) -> None:
        self.send(self.chance.choice(self.new))

    def give_up(self) -> None:
        self.chance.choice(self.new).give_up()

    def go_on_old(self) -> None:
        if self.old:
            self.serve(self.chance.choice(self.old))

    def fail_over(self) -> None:
        before = durable(self.coordinator.group)
        self.coordinator.fail_over()
        assert durable(self.coordinator.group) == before

    # -- members

    def send(self, client: Client) -> None:
        outcome = self.coordinator.heartbeat(client.member_id, client.epoch, **client.fields())
        if isinstance(outcome, REJOIN):
            client.start_again()
        else:
            assert not isinstance(outcome, KafkaError), outcome
            client.on_response(outcome)

    def serve(self, client: ClassicClient) -> None:
        """A cooperative consumer: it reads on while it joins, and drops what it is not assigned again."""
        code = client.heartbeat()
        if code == UnknownMemberId.code:
            client.member_id, client.owned = "", {}
        elif code == IllegalGeneration.code:
            client.owned = {}
        elif code != RebalanceInProgress.code:
            assert code == 0, code
            return
        outcome = client.join()
        assert not isinstance(outcome, KafkaError), outcome
        client.sync()

    # -- what must hold

    def used(self) -> Counter[tuple[bytes, int]]:
        members = self.coordinator.group.members
        new = [place for client in self.new if client.member_id in members for place in client.used]
        old = [
            (self.topic_id, partition)
            for client in self.old
            if client.member_id in members
            for partition in client.owned.get("a", [])
        ]
        return Counter(new + old)

    def check(self) -> None:
        used = self.used()
        assert not used or max(used.values()) == 1, used

    def come_to_rest(self) -> None:
        for _ in range(12 * MAX_MEMBERS):
            for client in self.new:
                client.give_up()
                self.send(client)
            for old in self.old:
                self.serve(old)
            self.coordinator.shard.advance(TICK_MS)
            self.check()
        assert self.used() == Counter(self.cluster.partitions_of("a"))
        sizes = [len(client.used) for client in self.new] + [len(client.owned.get("a", [])) for client in self.old]
        assert max(sizes) - min(sizes) <= 1, sizes
        assert self.coordinator.group.state_name == "Stable"


def live(*seeds: int) -> None:
    assert TICK_MS < REBALANCE_TIMEOUT_MS
    for seed in seeds:
        mixture = Mixture(seed)
        for _ in range(60):
            mixture.happen()
        mixture.come_to_rest()


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_members_of_both_protocols_never_share_a_partition(seed: int) -> None:
    live(seed)


def test_it_would_be_noticed_if_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "owner_of", lambda self, topic_id, partition: None)
    with pytest.raises(AssertionError):
        live(*range(20))
