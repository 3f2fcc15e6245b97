"""The table of what is measured of groups and transactions: a line per figure, with its unit and its goal."""

from bench.measures import Measure, Sizes, at_most

HEARTBEAT_EVERY_S = 3.0
TRANSACTION_VERSIONS = {2: "version 2", 1: "version 1, as librdkafka"}


def coordinator_measures(sizes: Sizes) -> list[Measure]:
    return [*_groups(sizes), *_failover(sizes), *_transactions(sizes)]


def _groups(sizes: Sizes) -> list[Measure]:
    section = "Groups"
    groups = f"{sizes.groups:,} groups of {sizes.members_per_group} members"
    offsets = f"{sizes.committed_offsets:,} committed offsets"
    steady = f"{groups}, a heartbeat every {HEARTBEAT_EVERY_S:g} s"
    start = "exec of three brokers (Tidelog: `tidelog up`)"
    return [
        Measure("group-first-produce", section, f"{start} to the first acknowledged produce", "s"),
        Measure("group-first-coordinator", section, f"{start} to the coordinator of the first group", "s"),
        Measure("group-first-join", section, f"{start} to its first member with its partitions", "s"),
        Measure(
            "group-first-message", section, f"{start} to the first message through the group", "s", goal=at_most(1.0)
        ),
        Measure("groups-join-cpu", section, f"{groups}: joining and syncing: CPU", "µs/member"),
        Measure("groups-steady-cpu", section, f"{steady}: CPU", "% of a core"),
        Measure("groups-heartbeat-cpu", section, "heartbeat, 100 unanswered: CPU", "µs"),
        Measure("groups-heartbeat-rate", section, "heartbeat, 100 unanswered: rate", "requests/s", "higher"),
        Measure("groups-commit-cpu", section, "commit of one offset, 100 unanswered: CPU", "µs"),
        Measure("groups-commit-rate", section, "commit of one offset, 100 unanswered: rate", "requests/s", "higher"),
        Measure("groups-commit-pipelined-cpu", section, "the same on one connection: CPU", "µs"),
        Measure("groups-commit-pipelined-rate", section, "the same on one connection: rate", "requests/s", "higher"),
        Measure("groups-commit-10-cpu", section, "commit of ten offsets, 100 unanswered: CPU", "µs"),
        Measure("groups-memory", section, f"{groups}, {offsets}: memory of the broker", "MB"),
        Measure("groups-memory-growth", section, f"{groups}, {offsets}: of it, since there were none", "MB"),
        Measure("groups-start", section, f"{offsets}: exec to the answers of all groups, after a clean stop", "s"),
        Measure("consumer-groups-join-cpu", section, f"consumer protocol, {groups}: joining: CPU", "µs/member"),
        Measure("consumer-groups-heartbeat-cpu", section, "consumer protocol, heartbeat: CPU", "µs"),
        Measure(
            "consumer-groups-heartbeat-rate", section, "consumer protocol, heartbeat: rate", "requests/s", "higher"
        ),
    ]


def _failover(sizes: Sizes) -> list[Measure]:
    text = f"kill -9 of a broker until all its groups answer, {sizes.committed_offsets:,} committed offsets"
    return [Measure("groups-failover", "Groups on three brokers", text, "s")]


def _transactions(sizes: Sizes) -> list[Measure]:
    section = "Transactions on three brokers: a record to each of three partitions, acks=all"
    found = []
    for version, title in TRANSACTION_VERSIONS.items():
        identity, many = f"transactions-{version}", f"{sizes.transactional_producers} producers"
        found += [
            Measure(f"{identity}-p50", section, f"{title}, one producer: p50", "ms"),
            Measure(f"{identity}-p99", section, f"{title}, one producer: p99", "ms"),
            Measure(f"{identity}-rate", section, f"{title}, {many}: rate", "commits/s", "higher"),
            Measure(f"{identity}-cpu", section, f"{title}, {many}: CPU of all three", "ms/commit"),
        ]
    return found
