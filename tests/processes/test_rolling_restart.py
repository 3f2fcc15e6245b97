"""Brokers are stopped in good order and started again, one after the other, while a producer writes."""

from tests.processes.cluster import BROKERS, Cluster
from tests.processes.load import under_load

LONGEST_SILENCE_S = 3.0


def test_rolling_restart_reaches_no_producer(cluster: Cluster) -> None:
    with under_load(cluster) as load:
        for broker_id in BROKERS:
            broker = cluster.brokers[broker_id]
            load.writer.wait_for_more()
            broker.ask_to_stop()
            broker.wait_until_stopped()
            assert "controlled shutdown: all leaders have moved" in broker.output
            load.writer.wait_for_more()
            cluster.start([broker_id])
            load.wait_until_whole()
    assert load.writer.longest_silence_s() < LONGEST_SILENCE_S
