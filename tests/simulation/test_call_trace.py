"""The walk of one replicated record through its leader: each question about leadership is asked once."""

from tests.simulation.call_trace import CallTrace, trace_consumer_fetch, trace_produce, trace_replicated_record

FETCHES = 4
"""Two followers: a fetch that waits is read when the record comes, and the next one when it is sent."""


def asked(trace: CallTrace, *names: str) -> dict[str, int]:
    return {name: trace.count(name) for name in names}


def test_the_leader_of_a_replicated_record_checks_each_fetch_once() -> None:
    trace = trace_replicated_record()
    assert asked(
        trace,
        "Partition.fetch_records",
        "LeaderEpochs.diverging_epoch",
        "Partition.require_leader",
        "Lease.is_valid",
        "PartitionLeader.on_follower_fetch",
    ) == {
        "Partition.fetch_records": FETCHES,
        "LeaderEpochs.diverging_epoch": FETCHES,
        "Partition.require_leader": FETCHES + 1,  # and the produce
        "Lease.is_valid": FETCHES + 1,
        "PartitionLeader.on_follower_fetch": 2,  # what is read again is not recorded again
    }


def test_a_produce_and_a_consumer_fetch_ask_once() -> None:
    assert asked(trace_produce(), "Partition.require_leader", "Lease.is_valid") == {
        "Partition.require_leader": 1,
        "Lease.is_valid": 1,
    }
    assert asked(trace_consumer_fetch(), "Partition._require_replica", "Partition.fetch_records") == {
        "Partition._require_replica": 1,
        "Partition.fetch_records": 1,
    }
