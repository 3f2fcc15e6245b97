"""The audit of the coordination store during a takeover: what a controller registers holds when that is done (R44)."""

from dataclasses import replace

from tidelog.cluster import znodes
from tidelog.cluster.image import PartitionRegistration
from tidelog.cluster.znodes import ClusterNode, TakeoverState
from tidelog.simulation.store_audit import UNCLEAN_ELECTIONS, StoreAudit
from tidelog.store.interface import NO_OWNER, Create, Operation, Set
from tidelog.store.memory import MemoryStoreState

ORDERS_ID = bytes(range(16))
FIRST, SECOND = 11, 12
"""Sessions of the controllers in epoch 4 and then 5."""
REGISTERED = PartitionRegistration(0, (1, 2), leader=1, leader_epoch=8, in_sync_replicas=(1, 2), controller_epoch=4)


def put(state: MemoryStoreState, path: str, data: bytes, session_id: int) -> None:
    operation: Operation = Create(path, data) if state.find(path) is None else Set(path, data)
    state.perform([operation], session_id)


def begin_takeover() -> tuple[MemoryStoreState, StoreAudit]:
    """By the first controller, which has registered one partition."""
    state = MemoryStoreState()
    audit = StoreAudit(state)
    register_one_partition(state)
    return state, audit


def register_one_partition(state: MemoryStoreState) -> None:
    for path in znodes.PERSISTENT_PATHS:
        put(state, path, b"", NO_OWNER)
    elect(state, 4, FIRST)
    become(state, TakeoverState.REGISTERING)
    put(state, znodes.topic_path("orders"), znodes.encode_topic(ORDERS_ID, [REGISTERED]), FIRST)
    put(state, znodes.partitions_path("orders"), b"", FIRST)
    put(state, znodes.partition_path("orders", 0), b"", FIRST)
    register(state, REGISTERED, FIRST)


def elect(state: MemoryStoreState, epoch: int, session_id: int) -> None:
    put(state, znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), session_id)


def become(state: MemoryStoreState, takeover: TakeoverState) -> None:
    put(state, znodes.CLUSTER_ID, znodes.encode_cluster(ClusterNode("cluster", takeover)), NO_OWNER)


def register(state: MemoryStoreState, partition: PartitionRegistration, session_id: int) -> None:
    put(state, znodes.state_path("orders", 0), znodes.encode_state(partition), session_id)


def test_the_next_controller_may_register_the_same_leader_epoch_again() -> None:
    state, audit = begin_takeover()
    elect(state, 5, SECOND)
    register(state, replace(REGISTERED, controller_epoch=5), SECOND)
    assert not audit.violations


def test_the_next_controller_may_find_other_logs_and_choose_another_leader() -> None:
    """A broker that lost power between the two has a shorter log, which was the newest."""
    state, audit = begin_takeover()
    elect(state, 5, SECOND)
    register(state, replace(REGISTERED, leader=2, in_sync_replicas=(2,), controller_epoch=5), SECOND)
    register(state, replace(REGISTERED, leader_epoch=7, controller_epoch=5), SECOND)
    assert not audit.violations


def test_a_deposed_controller_that_goes_on_registering_is_noticed() -> None:
    state, audit = begin_takeover()
    elect(state, 5, SECOND)
    register(state, REGISTERED, FIRST)
    assert [line.rpartition(": ")[2] for line in audit.violations] == ["controller epoch 5 has begun"]


def test_nobody_but_the_controller_changes_what_is_registered_before_the_takeover_is_done() -> None:
    state, audit = begin_takeover()
    put(state, znodes.broker_path(1), b"{}", SECOND)
    register(state, replace(REGISTERED, in_sync_replicas=(1,)), SECOND)
    assert [line.rpartition(": ")[2] for line in audit.violations] == ["another session is controller in this epoch"]


def test_what_is_registered_holds_when_the_takeover_is_done() -> None:
    state, audit = begin_takeover()
    become(state, TakeoverState.DONE)
    elect(state, 5, SECOND)
    register(state, replace(REGISTERED, controller_epoch=5), SECOND)
    register(state, replace(REGISTERED, leader=2, controller_epoch=5), SECOND)
    assert [line.rpartition(": ")[2] for line in audit.violations] == [
        "it was not written by its leader",
        "broker 1 leads in this epoch",
    ]


def test_a_takeover_of_a_topic_that_allows_unclean_elections_counts_as_one() -> None:
    """Its logs may have diverged before, and the newest record need not be of the last leader (seed 6070)."""
    state, audit = begin_takeover()
    put(state, znodes.topic_config_path("orders"), znodes.encode_config({UNCLEAN_ELECTIONS: "true"}), FIRST)
    become(state, TakeoverState.DONE)
    elected: list[int] = []
    audit.on_unclean.append(lambda _, stored: elected.append(stored.state.leader))
    state.lose()
    register_one_partition(state)
    assert elected == [1]
