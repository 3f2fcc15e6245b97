"""Kafka's `kafka-configs` on settings that change while brokers run: thread pools, throttles, and what is refused."""

from collections.abc import Iterator
from functools import partial

from compat.command_line import ToolBox, tool
from tests.clients.broker import TidelogCluster
from tests.clients.driver import wait_until

POOLS = {
    "background.threads": 12,
    "log.cleaner.threads": 2,
    "num.io.threads": 9,
    "num.network.threads": 4,
    "num.recovery.threads.per.data.dir": 3,
    "num.replica.fetchers": 2,
}
RATES = {
    "leader.replication.throttled.rate": 10_000_000,
    "follower.replication.throttled.rate": 20_000_000,
    "replica.alter.log.dirs.io.max.bytes.per.second": 30_000_000,
}
LISTS = {"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"}
REJECTED = (
    ("broker.id=9", "Cannot update these configs dynamically"),
    ("num.io.threads=100", "value should not be greater than double the current value"),
    ("leader.replication.throttled.rate=-1", "Value must be at least 0"),
)


def entities(cluster: TidelogCluster) -> Iterator[tuple[tuple[str, ...], str]]:
    """Arguments that name a broker or all of them, and the source that describes its settings."""
    for broker_id in cluster.brokers:
        yield ("--entity-type", "brokers", "--entity-name", str(broker_id)), "DYNAMIC_BROKER_CONFIG"
    yield ("--entity-type", "brokers", "--entity-default"), "DYNAMIC_DEFAULT_BROKER_CONFIG"


@tool("kafka-configs of thread pools and rates, set and removed for each broker and for all")
def alters_dynamic_settings(box: ToolBox, cluster: TidelogCluster) -> None:
    for entity, source in entities(cluster):
        wanted = [f"{name}={value}" for name, value in {**POOLS, **RATES}.items()]
        box.configs("--alter", *entity, "--add-config", ",".join(wanted))
        expected = [f"{each} sensitive=false synonyms={{{source}:{each}" for each in wanted]
        wait_until(lambda e=entity, t=expected: all(each in box.configs("--describe", *e) for each in t), "all are set")  # type: ignore[misc]
        box.configs("--alter", *entity, "--delete-config", ",".join([*POOLS, *RATES]))
        wait_until(lambda e=entity: "threads" not in box.configs("--describe", *e), "none is set")  # type: ignore[misc]


@tool("kafka-configs of lists of throttled replicas")
def alters_lists_of_throttled_replicas(box: ToolBox, cluster: TidelogCluster) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", box.topic)
    lists = [f"{name}=[{value}]" for name, value in LISTS.items()]
    box.configs("--alter", *of_topic, "--add-config", ",".join(lists))
    expected = [f"{name}={value} " for name, value in LISTS.items()]
    wait_until(lambda: all(each in box.configs("--describe", *of_topic) for each in expected), "they are described")
    box.configs("--alter", *of_topic, "--delete-config", ",".join(LISTS))
    wait_until(lambda: "throttled" not in box.configs("--describe", *of_topic), "they are no longer described")


@tool("kafka-configs refuses what cannot change or is out of bounds, in Kafka's words")
def refuses_settings(box: ToolBox, cluster: TidelogCluster) -> None:
    for entity, _ in entities(cluster):
        for wanted, words in REJECTED:
            try:
                box.configs("--alter", *entity, "--add-config", wanted)
            except AssertionError as rejected:
                assert words in str(rejected), rejected  # noqa: PT017 - the tool's own output
            else:
                raise AssertionError(f"{wanted} was accepted")


QUOTAS = {
    ("--entity-type", "users", "--entity-name", "alice"): {"producer_byte_rate": "1048576.0"},
    ("--entity-type", "users", "--entity-default"): {"consumer_byte_rate": "2097152.0"},
    ("--entity-type", "clients", "--entity-name", "app"): {"request_percentage": "12.5"},
    ("--entity-type", "clients", "--entity-default"): {"controller_mutation_rate": "100.0"},
    (
        *("--entity-type", "users", "--entity-name", "alice"),
        *("--entity-type", "clients", "--entity-default"),
    ): {"producer_byte_rate": "1024.0", "consumer_byte_rate": "2048.0"},
    ("--entity-type", "ips", "--entity-name", "10.0.0.1"): {"connection_creation_rate": "5.0"},
}


@tool("kafka-configs of quotas of users, client ids and addresses")
def alters_quotas(box: ToolBox, cluster: TidelogCluster) -> None:
    for entity, quotas in QUOTAS.items():
        wanted = [f"{name}={value}" for name, value in quotas.items()]
        box.configs("--alter", *entity, "--add-config", ",".join(wanted))
        expected = [f"{name}={value}" for name, value in quotas.items()]
        wait_until(partial(_describes, box, entity, expected, len(expected)), "all are set")
    for entity, quotas in QUOTAS.items():
        box.configs("--alter", *entity, "--delete-config", ",".join(quotas))
        wait_until(partial(_describes, box, entity, list(quotas), 0), "none is set")


def _describes(box: ToolBox, entity: tuple[str, ...], words: list[str], count: int) -> bool:
    printed = box.configs("--describe", *entity)
    return sum(each in printed for each in words) == count
