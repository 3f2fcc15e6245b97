"""Reading from the replica in the client's rack (KIP-392). Every broker of the cluster is in its own rack."""

import re
from urllib.request import urlopen

from tests.clients.broker import TidelogCluster
from tests.clients.driver import Capability, ProducerOptions, wait_until
from tests.clients.features import Workbench, assert_same, feature, numbered

BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"


def bytes_out(cluster: TidelogCluster, topic: str) -> dict[int, int]:
    """Bytes of the topic sent to consumers, by broker; only brokers that have sent any."""
    sent = {}
    for broker_id, broker in cluster.brokers.items():
        with urlopen(f"http://{cluster.metrics[broker_id]}/metrics") as response:
            found = re.search(rf'{BYTES_OUT}{{topic="{topic}"}} (\d+)', response.read().decode())
        if broker.is_running and found is not None and int(found[1]):
            sent[broker_id] = int(found[1])
    return sent


@feature("consume-in-rack", Capability.READ_IN_RACK, needs_cluster=True)
def reads_from_the_replica_in_its_rack(bench: Workbench) -> None:
    cluster = bench.broker
    assert isinstance(cluster, TidelogCluster)
    topic = bench.new_topic()
    records = numbered(200)
    bench.helper.produce(topic, records, ProducerOptions())
    bench.wait_for_replicas(topic)
    leader = bench.helper.describe_topic(topic)[0].leader
    for broker_id in cluster.brokers:
        before = bytes_out(cluster, topic)
        assert_same(bench.client.consume_in_rack(topic, 0, len(records), cluster.rack(broker_id)), records)
        wait_until(lambda before=before: bytes_out(cluster, topic) != before, "bytes are counted")  # type: ignore[misc]
        after = bytes_out(cluster, topic)
        assert {each for each in after if after[each] > before.get(each, 0)} == {broker_id}, (leader, before, after)
