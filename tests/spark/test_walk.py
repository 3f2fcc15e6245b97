"""The walk of a micro-batch in ARCHITECTURE.md as it really goes: every function that it names is called."""

from tests.simulation.test_walks import missing_hops
from tests.spark.call_trace import trace_micro_batch


def test_every_hop_of_a_micro_batch_is_called() -> None:
    called = {name for _, name in trace_micro_batch().calls}
    assert missing_hops("7. Spark micro-batch", called) == []
