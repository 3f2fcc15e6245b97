"""The table of what is measured on three brokers: a line per figure, with its unit, its direction and its goal."""

from bench.measures import Measure, Sizes, at_least, at_most

SECTION = "Three brokers, replication factor 3, min ISR 2, acks=all"
CLUSTER_PARTITIONS = (1, 12)
PERCENTS = (50, 99, 99.9)


def cluster_measures(sizes: Sizes) -> list[Measure]:
    return [*_cluster(), *_latency(), *_failover(), *_growth(sizes)]


def partitions_text(count: int) -> str:
    return f"{count:,} partition{'s' if count > 1 else ''}"


def _cluster() -> list[Measure]:
    found = [
        Measure("cluster-start", SECTION, "exec of three to first acknowledged produce", "s", goal=at_most(1.0)),
        Measure("cluster-memory-idle", SECTION, "memory of all three when idle", "MB", goal=at_most(150)),
        Measure("cluster-memory-loaded", SECTION, "memory of all three after all loads", "MB", goal=at_most(300)),
        Measure("cluster-cpu-idle", SECTION, "CPU of all three when idle", "% of a core", goal=at_most(2)),
    ]
    for count in CLUSTER_PARTITIONS:
        identity, title = f"cluster-{count}", f"produce 1 KB, linger 5, {partitions_text(count)}"
        found += [
            Measure(f"{identity}-rate", SECTION, f"{title}: rate", "MB/s", "higher", at_least(3, "peer", "Kafka")),
            Measure(f"{identity}-cpu", SECTION, f"{title}: CPU of all three", "s/GB", goal=at_most(3.0)),
        ]
    one_record = "one record per request, pipelined, 1 partition"
    return [
        *found,
        Measure("cluster-pipelined-rate", SECTION, f"{one_record}: rate", "requests/s", "higher"),
        Measure("cluster-pipelined-cpu", SECTION, f"{one_record}: CPU of all three", "s/million"),
    ]


def _latency() -> list[Measure]:
    section = "Three brokers: time to the acknowledgement, open loop"
    tables: tuple[tuple[str, str, dict[float, float]], ...] = (
        ("cluster-2k", "2,000/s, linger 0, 1 partition", {50: 2, 99: 10}),
        ("cluster-10k", "10,000/s, linger 5, 12 partitions", {50: 8, 99: 20, 99.9: 40}),
    )
    return [
        Measure(
            f"{identity}-p{percent:g}",
            section,
            f"{title}: p{percent:g}",
            "ms",
            goal=at_most(limits[percent]) if percent in limits else None,
        )
        for identity, title, limits in tables
        for percent in PERCENTS
    ]


def _failover() -> list[Measure]:
    section = "Three brokers: kill -9 of a leader, until the next acknowledged produce"
    tables = (
        ("failover", "as installed (Tidelog: embedded store; Kafka: session of 9 s)", 0.3, 0.6),
        ("failover-short", "session of 1 s (Tidelog: in ZooKeeper)", 1.4, 2.0),
    )
    found = []
    for identity, title, median_limit, worst_limit in tables:
        election = f"{title}: of it, from the election on"
        found += [
            Measure(f"{identity}-p50", section, f"{title}: p50", "s", goal=at_most(median_limit)),
            Measure(f"{identity}-p99", section, f"{title}: p99", "s", goal=at_most(worst_limit), percent=99),
            Measure(f"{identity}-elected-p50", section, f"{election}: p50", "s", goal=at_most(0.1)),
            Measure(f"{identity}-client-p50", section, f"{title}: as librdkafka reports: p50", "s"),
        ]
    return found


def _growth(sizes: Sizes) -> list[Measure]:
    section = "Three brokers: growth in partitions"
    found = []
    for count in sizes.cluster_partition_counts:
        identity, text = f"cluster-growth-{count}", partitions_text(count)
        idle_goal = at_most(10) if count >= 1_000 else None
        load = f"{text}: produce 1 KB, linger 5, spread by the client"
        found += [
            Measure(f"{identity}-idle-cpu", section, f"{text}: CPU when idle", "% of a core", goal=idle_goal),
            Measure(f"{identity}-idle-memory", section, f"{text}: memory when idle", "MB"),
            Measure(f"{identity}-rate", section, f"{load}: rate", "MB/s", "higher"),
            Measure(f"{identity}-cpu", section, f"{load}: CPU", "s/GB"),
            Measure(f"{identity}-memory", section, f"{text}: memory afterwards", "MB"),
        ]
    return found
