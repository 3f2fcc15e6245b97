"""The checks at every change of a replica can fail: each notices what was made wrong by hand, when it is made wrong."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.server.harness import batch_of
from tests.simulation.scenario import TOPIC, create_topic, produce, replica, simulate, stored, wait_for
from tidelog.cluster.znodes import encode_state, state_path
from tidelog.errors import KafkaStorageError
from tidelog.protocol.record_batch import place
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.simulation.invariants import Invariants
from tidelog.simulation.log_ledger import Ledger, Mirror
from tidelog.simulation.log_watch import BatchFacts
from tidelog.store.interface import NO_OWNER, Set
from tidelog.types import TopicPartition

PARTITION = TopicPartition(TOPIC, 0)
Damage = Callable[[SimulatedCluster, Invariants], None]


async def inside(cluster: SimulatedCluster, broker_id: int, step: Callable[[], object]) -> None:
    """As if the broker did it."""

    async def take_step() -> None:
        step()

    process = cluster.machines[broker_id].process
    assert process is not None
    await process.run(take_step())


def found(damaged: int, damage: Damage) -> list[str]:
    """What is noted at once when a broker of a whole cluster does this; broker 1 leads, and two records are there."""
    noted: list[str] = []

    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = Invariants(cluster)
        with invariants.watching():
            await create_topic(cluster, [1, 2, 3])
            for value in (b"a", b"b"):
                invariants.history.on_acknowledged(PARTITION, await produce(cluster, value), value)
            await wait_for(lambda: all(replica(cluster, each).log.high_watermark == 2 for each in (1, 2, 3)))
            invariants.check_noted()
            assert invariants.replicas.events > 0
            await inside(cluster, damaged, lambda: damage(cluster, invariants))
            noted.extend(invariants.noted())

    simulate(scenario)
    return noted


def other_batch(offset: int, epoch: int = 0) -> bytearray:
    batch = bytearray(batch_of(b"c"))
    place(batch, offset, epoch)
    return batch


def cut_what_is_committed(cluster: SimulatedCluster, invariants: Invariants) -> None:
    invariants.history.ends.clear()
    replica(cluster, 2).log.truncate_to(1)


def cut_what_was_acknowledged(cluster: SimulatedCluster, invariants: Invariants) -> None:
    replica(cluster, 2).log.truncate_to(1)


def append_another_batch(cluster: SimulatedCluster, invariants: Invariants) -> None:
    replica(cluster, 2).log.truncate_to(1)
    replica(cluster, 2).log.append_as_follower(other_batch(1))


def commit_another_batch(cluster: SimulatedCluster, invariants: Invariants) -> None:
    log = replica(cluster, 2).log
    log.truncate_to(1)
    log.append_as_follower(other_batch(1, epoch=1))
    log.raise_high_watermark(2)


def lead_in_the_epoch_of_another(cluster: SimulatedCluster, invariants: Invariants) -> None:
    replica(cluster, 2).log.append_as_leader(memoryview(bytearray(batch_of(b"c"))), 0)


def start_above_the_high_watermark(cluster: SimulatedCluster, invariants: Invariants) -> None:
    log = replica(cluster, 2).log
    log.high_watermark = 0
    log.log_start_offset = 1
    log.append_as_follower(other_batch(2))


def lower_the_high_watermark(cluster: SimulatedCluster, invariants: Invariants) -> None:
    log = replica(cluster, 1).log
    log.high_watermark = 0
    log.raise_high_watermark(1)


def acknowledge_what_is_not_there(cluster: SimulatedCluster, invariants: Invariants) -> None:
    invariants.history.on_acknowledged(PARTITION, 2, b"c")


def write_state(cluster: SimulatedCluster, **changes: object) -> None:
    state = replace(stored(cluster), **changes)  # type: ignore[arg-type]
    cluster.store_state.perform([Set(state_path(*PARTITION), encode_state(state))], NO_OWNER)


def let_a_stranger_be_in_sync(cluster: SimulatedCluster, invariants: Invariants) -> None:
    write_state(cluster, in_sync_replicas=(1, 2, 3, 4))


def elect_uncleanly(cluster: SimulatedCluster, invariants: Invariants) -> None:
    write_state(cluster, in_sync_replicas=(1, 2))
    write_state(cluster, leader=3, leader_epoch=1, in_sync_replicas=(3,))


@pytest.mark.parametrize(
    ("damaged", "damage", "message"),
    [
        (2, cut_what_is_committed, "I2 orders-0 in-sync replica 2 ends at 1, and 2 is committed"),
        (2, cut_what_was_acknowledged, "I4 orders-0 in-sync replica 2 ends at 1, and 2 was acknowledged"),
        (2, append_another_batch, "I3 orders-0 on broker 2: two batches are at (1, 0)"),
        (2, commit_another_batch, "I2 orders-0 on broker 2: broker 2 holds"),
        (2, lead_in_the_epoch_of_another, "I6 orders-0 on broker 2: it appends as leader in epoch 0"),
        (2, start_above_the_high_watermark, "R4 orders-0 on broker 2: its log is [1, 0, 3]"),
        (1, lower_the_high_watermark, "I5 orders-0 on broker 1: its high watermark fell from 2 to 1"),
        (1, acknowledge_what_is_not_there, "I4 orders-0 in-sync replica 1 ends at 2, and 3 was acknowledged"),
        (1, let_a_stranger_be_in_sync, "I1 orders-0"),
        (1, elect_uncleanly, "I4 orders-0"),
    ],
)
def test_damage_is_noted_at_once(damaged: int, damage: Damage, message: str) -> None:
    noted = found(damaged, damage)
    assert any(line.startswith(message) for line in noted), noted


def test_damage_that_is_found_twice_is_noted_once() -> None:
    def find_twice(cluster: SimulatedCluster, invariants: Invariants) -> None:
        cut_what_was_acknowledged(cluster, invariants)
        invariants.replicas.on_truncated(replica(cluster, 2).log)

    noted = found(2, find_twice)
    assert noted, "the damage was found"
    assert len(noted) == len(set(noted)), noted


def test_what_no_broker_does_is_not_noted() -> None:
    """A log that is no replica of the cluster is nobody's business."""

    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = Invariants(cluster)
        with invariants.watching():
            await create_topic(cluster, [1, 2, 3])
            replica(cluster, 2).log.truncate_to(0)
            invariants.check_noted()

    simulate(scenario)


def test_what_a_follower_appended_before_a_shortage_is_known() -> None:
    """Of two batches that are fetched together, the second may fail (seed 20160)."""

    async def scenario(cluster: SimulatedCluster) -> None:
        invariants = Invariants(cluster)
        with invariants.watching():
            await create_topic(cluster, [1, 2, 3])
            await produce(cluster, b"a")
            await wait_for(lambda: all(replica(cluster, each).log.high_watermark == 1 for each in (1, 2, 3)))
            await inside(cluster, 2, lambda: append_half(cluster))
            noted = invariants.noted()
            assert any(line.startswith("I3 orders-0 on broker 2: two batches are at (1, 0)") for line in noted), noted

    def append_half(cluster: SimulatedCluster) -> None:
        log, disk = replica(cluster, 2).log, cluster.machines[2].disk
        log.append_as_follower(other_batch(1))
        log.truncate_to(1)
        first = bytearray(batch_of(b"d"))
        place(first, 1, 0)
        disk.inject(errno.EMFILE, "/logs/orders-0/leader-epoch-journal", ("open",))
        with pytest.raises(KafkaStorageError):
            log.append_as_follower(bytes(first) + bytes(other_batch(2, epoch=1)))
        disk.faults.clear()
        assert log.log_end_offset == 2

    simulate(scenario)


# ---- the ledger


def facts(*epochs: int, crc: int = 7) -> list[BatchFacts]:
    """One batch of one record for each epoch."""
    return [BatchFacts(offset, offset + 1, epoch, crc + offset) for offset, epoch in enumerate(epochs)]


def lines(found: Iterator[str]) -> int:
    return len(list(found))


def test_equal_logs_match() -> None:
    ledger = Ledger()
    assert lines(ledger.match(facts(0, 0, 1), None)) == lines(ledger.match(facts(0, 0, 1), None)) == 0


def test_another_batch_of_the_same_epoch_does_not_match() -> None:
    ledger = Ledger()
    assert lines(ledger.match(facts(0, 0), None)) == 0
    assert lines(ledger.match(facts(0, 0, crc=8), None)) == 2


def test_another_epoch_at_the_same_offset_matches_as_long_as_nothing_common_follows() -> None:
    ledger = Ledger()
    assert lines(ledger.match(facts(0, 0, 2), None)) == 0
    assert lines(ledger.match(facts(0, 1), None)) == 0
    assert lines(ledger.match(facts(0, 1, 2), None)) == 1


def test_what_is_committed_stays() -> None:
    ledger, leader = Ledger(), Mirror(1, facts(0, 0))
    assert lines(ledger.commit(leader, 2)) == 0
    assert lines(ledger.verify(Mirror(2, facts(0, 0)), 2)) == 0
    assert lines(ledger.verify(Mirror(2, facts(0, 1)), 1)) == 0
    assert lines(ledger.verify(Mirror(2, facts(0, 1)), 2)) == 1


def test_an_unclean_election_takes_it_back() -> None:
    ledger = Ledger()
    assert lines(ledger.commit(Mirror(1, facts(0, 0, 0)), 3)) == 0
    assert ledger.lose(Mirror(2, facts(0, 1))) == 1
    assert lines(ledger.commit(Mirror(2, facts(0, 1)), 2)) == 0


def test_what_was_deleted_is_not_compared() -> None:
    ledger = Ledger()
    assert lines(ledger.commit(Mirror(1, facts(0, 1, 1)), 3)) == 0
    assert lines(ledger.match(facts(0, 1, 1), None)) == 0
    ledger.deleted_offset = 2
    assert lines(ledger.verify(Mirror(2, facts(0, 0, 1)), 3)) == 0
    assert lines(ledger.match(facts(0, 0, 1)[2:], facts(0, 0)[1])) == 0
