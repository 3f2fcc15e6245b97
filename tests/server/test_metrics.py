"""Metrics on /metrics, on virtual time."""

import asyncio
import re
from collections.abc import Awaitable, Callable

from tests.server.harness import Client, Harness, batch_of, fetch_request, produce_request
from tests.server.scrape import Scrape, labelled
from tests.simulation.scenario import TOPIC, create_topic, produce, read_all, simulate, stored, wait_for
from tidelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tidelog.protocol.messages.produce import ProduceResponse
from tidelog.replication.assignment import LeaderAddress
from tidelog.replication.fetcher import FetcherStatistics
from tidelog.runtime.virtual_time import EPOCH_MS, run_virtually
from tidelog.server.broker import Broker
from tidelog.server.metrics.catalogue import METRICS
from tidelog.server.metrics.exposition import LINES_AT_A_TIME
from tidelog.server.metrics.metric import Kind, prometheus_name
from tidelog.server.metrics.reading import FetchRates
from tidelog.simulation.cluster import SimulatedCluster
from tidelog.types import BrokerId

TRAFFIC = "kafka_server_brokertopicmetrics_"
REPLICAS = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
ELECTIONS = "kafka_controller_controllerstats_leaderelectionrateandtimems"
OUT_OF_SYNC = "tidelog_replica_out_of_sync"
LAG_MS = 30_000

Scenario = Callable[[Broker, Client], Awaitable[None]]


def with_one_broker(scenario: Scenario, **settings: object) -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker(**settings) as broker:
            await scenario(broker, await harness.connect())

    run_virtually(main())


# ---- names


def test_names_are_those_that_people_know_from_the_jmx_exporter() -> None:
    names = {metric.origin: metric.name for metric in METRICS}
    assert names["kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"] == (
        "kafka_server_replicamanager_underreplicatedpartitions"
    )
    assert names["kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"] == (
        "kafka_server_brokertopicmetrics_bytesin_total"
    )
    assert names["kafka.server:type=socket-server-metrics,name=connection-count"] == (
        "kafka_server_socket_server_metrics_connection_count"
    )
    assert prometheus_name("kafka.network:type=RequestMetrics,name=ErrorsPerSec") == (
        "kafka_network_requestmetrics_errors_total"
    )


def test_every_metric_has_a_name_of_its_own_that_fits_its_kind() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.documentation.endswith("."), metric.name


def test_the_help_line_keeps_kafkas_name() -> None:
    async def scenario(broker: Broker, _: Client) -> None:
        lines = Scrape.of(broker).text.splitlines()
        at = lines.index("kafka_server_replicamanager_leadercount 0")
        assert lines[at - 2 : at] == [
            "# HELP kafka_server_replicamanager_leadercount Partitions that this broker leads."
            " (kafka.server:type=ReplicaManager,name=LeaderCount)",
            "# TYPE kafka_server_replicamanager_leadercount gauge",
        ]

    with_one_broker(scenario)


# ---- one broker


def test_traffic_is_counted_by_topic_and_for_all() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        await client.create_topic("clicks")
        size = len(batch_of(b"a", b"b"))
        await client.produce("orders", b"a", b"b")
        await client.produce("orders", b"a", b"b", partition=1, acks=1)
        await client.produce("clicks", b"a", b"b")
        await client.values("orders")
        found = Scrape.of(broker)
        assert found.all(f"{TRAFFIC}bytesin_total") == {
            labelled(): 3 * size,
            labelled(topic="orders"): 2 * size,
            labelled(topic="clicks"): size,
        }
        assert found(f"{TRAFFIC}messagesin_total", topic="orders") == 4
        assert found(f"{TRAFFIC}totalproducerequests_total") == 3
        assert found(f"{TRAFFIC}bytesout_total", topic="orders") == size
        assert found(f"{TRAFFIC}bytesout_total", topic="clicks") == 0
        assert found(f"{TRAFFIC}totalfetchrequests_total", topic="orders") == 2
        assert found(f"{TRAFFIC}failedproducerequests_total") == 0

    with_one_broker(scenario)


def test_failures_count_but_for_those_of_ordinary_life() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create_topic("orders", max_message_bytes="200")
        assert (await client.produce("orders", b"x" * 300)).error_code != 0  # clients meet that every day
        assert (await client.produce("nothing", b"x")).error_code != 0
        skipping = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0)
        await client.ask(produce_request("orders", skipping), 9, ProduceResponse)
        skipping = batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=7)
        rejected = await client.ask(produce_request("orders", skipping), 9, ProduceResponse)
        assert rejected.responses[0].partition_responses[0].error_code != 0
        await client.fetch("orders", 99)
        found = Scrape.of(broker)
        assert found(f"{TRAFFIC}failedproducerequests_total", topic="orders") == 1
        assert found(f"{TRAFFIC}totalproducerequests_total", topic="orders") == 3
        assert found(f"{TRAFFIC}failedfetchrequests_total", topic="orders") == 0

    with_one_broker(scenario)


def test_what_a_deleted_topic_had_stays_in_the_totals() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create_topic("orders")
        await client.produce("orders", b"a", b"b")
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=10_000)
        await client.ask(request, 6, DeleteTopicsResponse)
        await asyncio.sleep(1)
        found = Scrape.of(broker)
        assert found.all(f"{TRAFFIC}messagesin_total") == {labelled(): 2}
        assert found(f"{REPLICAS}partitioncount") == 0

    with_one_broker(scenario)


def test_what_waits_is_counted_by_its_kind() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create_topic("orders")
        waiting = client.start(fetch_request("orders", 0, max_wait_ms=5000), 12)
        await asyncio.sleep(1)
        name = "kafka_server_delayedoperationpurgatory_purgatorysize"
        assert Scrape.of(broker)(name, delayedOperation="Fetch") == 1
        assert Scrape.of(broker)(name, delayedOperation="Produce") == 0
        await client.produce("orders", b"a")
        await waiting
        assert Scrape.of(broker)(name, delayedOperation="Fetch") == 0

    with_one_broker(scenario)


def test_logs_connections_and_the_process() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create_topic("orders", partitions=2)
        await client.produce("orders", b"a", b"b", partition=1)
        found = Scrape.of(broker)
        assert found.all("kafka_log_log_logendoffset") == {
            labelled(topic="orders", partition=0): 0,
            labelled(topic="orders", partition=1): 2,
        }
        assert found("kafka_log_log_size", topic="orders", partition=1) == len(batch_of(b"a", b"b"))
        assert found("tidelog_log_high_watermark_offset", topic="orders", partition=1) == 2
        assert found("kafka_log_logmanager_offlinelogdirectorycount") == 0
        assert found("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") >= 1
        assert found("process_resident_memory_bytes") > 1_000_000
        assert found("process_cpu_seconds_total") > 0
        assert found("process_open_fds") > 0
        assert found("tidelog_broker_fenced") == 0

    with_one_broker(scenario)


def test_names_of_topics_cannot_break_the_format() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        broker._services.replicas.traffic.of('a"b\\c\nd').bytes_in = 5
        assert Scrape.of(broker)(f"{TRAFFIC}bytesin_total", topic='a"b\\c\nd') == 5

    with_one_broker(scenario)


def test_many_partitions_come_in_pieces_that_are_made_when_they_are_asked_for() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        await client.create_topic("orders", partitions=LINES_AT_A_TIME)
        pieces = broker.metrics.pieces()
        made = [next(pieces)]
        await client.produce("orders", b"a", partition=LINES_AT_A_TIME - 1)
        made += pieces
        assert len(made) > 4
        assert max(piece.count(b"\n") for piece in made) <= LINES_AT_A_TIME
        found = Scrape(b"".join(made).decode())
        assert found("kafka_log_log_logendoffset", topic="orders", partition=LINES_AT_A_TIME - 1) == 1

    with_one_broker(scenario)


def test_requests_of_a_new_kind_do_not_cut_a_page_short() -> None:
    async def scenario(broker: Broker, client: Client) -> None:
        times = broker._services.request_times
        for version in range(LINES_AT_A_TIME):
            times.of("Produce", version).answered[0] += 1
        made = []
        for number, piece in enumerate(broker.metrics.pieces()):
            made.append(piece)
            times.of("Fetch", number).answered[0] += 1
        found = Scrape(b"".join(made).decode())
        assert found("tidelog_broker_fenced") == 0
        assert found("kafka_network_requestmetrics_requests_total", request="Produce", version=0) == 1

    with_one_broker(scenario)


def test_the_lowest_fetch_rate_is_that_since_the_last_scrape() -> None:
    def fetcher(leader: BrokerId, started_s: float, requests: int) -> FetcherStatistics:
        return FetcherStatistics(LeaderAddress(leader, "host", 1), "fetcher", True, started_s, requests, 0, {})

    rates = FetchRates()
    assert rates.lowest((), 0.0) == 0
    assert rates.lowest((fetcher(1, 0.0, 20), fetcher(2, 0.0, 10)), 10.0) == 1.0
    assert rates.lowest((fetcher(1, 0.0, 25), fetcher(2, 0.0, 100)), 20.0) == 0.5
    assert rates.lowest((fetcher(1, 22.0, 6),), 24.0) == 3.0, "another fetcher, after a failover"
    assert rates.lowest((fetcher(1, 22.0, 6),), 24.0) == 0.0


# ---- a cluster


async def fail_over(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [3, 2, 1], min_insync_replicas=2)
    size = len(batch_of(b"a"))
    await produce(cluster, b"a")
    await read_all(cluster)
    leader, follower = Scrape.of(cluster.broker(3)), Scrape.of(cluster.broker(2))
    assert leader(f"{REPLICAS}leadercount") == 1
    assert follower(f"{REPLICAS}leadercount") == 0
    assert leader(f"{REPLICAS}underreplicatedpartitions") == leader(f"{REPLICAS}atminisrpartitioncount") == 0
    assert leader(f"{TRAFFIC}replicationbytesout_total") == 2 * size
    assert leader(f"{TRAFFIC}bytesout_total") == size, "followers do not count as consumers"
    assert follower(f"{TRAFFIC}replicationbytesin_total") == size
    assert follower(f"{TRAFFIC}bytesin_total") == 0
    assert list(follower.all("kafka_server_fetcherlagmetrics_consumerlag").values()) == [0]
    assert sum(follower.all("kafka_server_fetcherstats_bytes_total").values()) == size
    assert follower("kafka_server_replicafetchermanager_minfetchrate", clientId="Replica") > 0
    assert leader("kafka_server_fetchsessioncache_numincrementalfetchsessions") == 2
    assert leader("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached") == 2
    controller = Scrape.of(cluster.broker(1))
    assert [Scrape.of(each)(f"{CONTROLLER}activecontrollercount") for each in cluster.running] == [1, 0, 0]
    assert controller(f"{CONTROLLER}globaltopiccount") == controller(f"{CONTROLLER}globalpartitioncount") == 1
    assert follower(f"{CONTROLLER}globaltopiccount") == 0, "figures of the cluster come from the controller only"

    cluster.kill(3)
    await wait_for(lambda: stored(cluster).leader == 2)
    await asyncio.sleep(1)
    controller, leader = Scrape.of(cluster.broker(1)), Scrape.of(cluster.broker(2))
    assert controller(f"{ELECTIONS}_count") == 1
    assert controller(f"{ELECTIONS}_sum") >= 0
    assert controller("kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert controller(f"{CONTROLLER}preferredreplicaimbalancecount") == 1
    assert controller(f"{CONTROLLER}activebrokercount") == 2
    assert leader(f"{REPLICAS}underreplicatedpartitions") == leader(f"{REPLICAS}atminisrpartitioncount") == 1
    assert leader(f"{REPLICAS}underminisrpartitioncount") == 0

    cluster.kill(1)
    await wait_for(lambda: stored(cluster).in_sync_replicas == (2,))
    await asyncio.sleep(1)
    left = Scrape.of(cluster.broker(2))
    assert left(f"{REPLICAS}underminisrpartitioncount") == 1
    assert left(f"{CONTROLLER}activecontrollercount") == 1


def test_a_failover_shows_in_the_figures() -> None:
    simulate(fail_over)


async def fall_behind(cluster: SimulatedCluster) -> None:
    await create_topic(cluster, [1, 2, 3])
    await produce(cluster, b"a")
    cluster.cut(3, [1])
    await asyncio.sleep(1)
    await produce(cluster, b"b", b"c", acks=1)
    await wait_for(lambda: stored(cluster).in_sync_replicas == (1, 2), 60)
    await asyncio.sleep(1)
    found = Scrape.of(cluster.broker(1))
    rule = f"not caught up for {LAG_MS} ms (replica.lag.time.max.ms)"
    remedy = "it must reach the high watermark"
    replica = {"topic": TOPIC, "partition": 0, "replica": 3}
    assert found.all(OUT_OF_SYNC) == {labelled(**replica, rule=rule, remedy=remedy): 1}
    assert found(f"{OUT_OF_SYNC}_behind_offsets", **replica) == 2
    since_s = found(f"{OUT_OF_SYNC}_since_seconds", **replica) - EPOCH_MS / 1000
    assert LAG_MS / 1000 < since_s < asyncio.get_running_loop().time()
    assert found(f"{REPLICAS}isrshrinks_total") == 1
    assert found(f"{REPLICAS}isrexpands_total") == 0

    connection = await cluster.connect(1)
    response = await connection.ask(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    (reported,) = response.results[0].topics[0].partitions[0].out_of_sync  # what `tidelog status` shows
    assert (reported.replica_id, reported.rule, reported.remedy, reported.behind) == (3, rule, remedy, 2)

    cluster.mend()
    await wait_for(lambda: set(stored(cluster).in_sync_replicas) == {1, 2, 3}, 60)
    found = Scrape.of(cluster.broker(1))
    assert not found.all(OUT_OF_SYNC)
    assert found(f"{REPLICAS}isrexpands_total") == 1


def test_each_replica_out_of_sync_is_reported_with_its_reason() -> None:
    simulate(fall_behind)
