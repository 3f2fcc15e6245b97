"""The walks of ARCHITECTURE.md as they really go: a simulated cluster calls every function that they name."""

import re
from collections.abc import Callable, Collection

import pytest

from tests.simulation.call_trace import (
    CallTrace,
    trace_consumer_fetch,
    trace_failover,
    trace_follower,
    trace_offset_commit,
    trace_replicated_record,
    trace_transaction,
)
from tests.test_architecture import NAMES, PAGE

OTHER_CASES = {
    "controller.failover.on_controller_failover",  # the dead broker was the controller
    "replication.replica_selector.preferred_read_replica",  # the consumer names its rack
    "replicated.shard.Shard.leave",  # the broker loses the partition
    "server.fetch_sessions.SessionFetch",  # the fetch has a session
}
"""Named in a walk for a case that the trace does not have."""

TRACES: dict[str, list[Callable[[], CallTrace]]] = {
    "1. Produce with acks=all": [trace_replicated_record],
    "2. Follower fetch": [trace_replicated_record, trace_follower],
    "3. Failover": [trace_failover, lambda: trace_failover(traced=3)],
    "4. Consumer fetch": [trace_consumer_fetch],
    "5. Offset commit": [trace_offset_commit],
    "6. Transaction": [trace_transaction],
}


def hops_of(walk: str) -> list[str]:
    """Functions and classes that the walk names, without the events and seams between them."""
    found = re.search(rf"^\*\*{re.escape(walk)}\.\*\*(.*?)^(?:\*\*\d|## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    quoted = dict.fromkeys(re.findall(r"`([^`\n]+)`", found[1]))
    return [
        name
        for name in quoted
        if name in NAMES and not name.startswith(("runtime.", "controller.events.")) and name not in OTHER_CASES
    ]


def qualified(name: str) -> str:
    """`Partition.perform` of `replication.partition.Partition.perform`."""
    parts = name.split(".")
    return ".".join(part for part in parts if part[0].isupper() or part == parts[-1])


def missing_hops(walk: str, called: Collection[str]) -> list[str]:
    hops = hops_of(walk)
    assert len(hops) > 3
    return [hop for hop in hops if not any(f"{name}.".startswith(f"{qualified(hop)}.") for name in called)]


@pytest.mark.parametrize("walk", TRACES)
def test_every_hop_of_a_walk_is_called(walk: str) -> None:
    assert missing_hops(walk, {name for trace in TRACES[walk] for _, name in trace().calls}) == []
