"""The table of what is measured on one broker: a line per figure, with its unit, its direction and its goal."""

from bench.measures import Measure, Sizes, at_least, at_most


def one_broker_measures(sizes: Sizes) -> list[Measure]:
    return [*_one_broker(), *_latency(), *_partitions(sizes), *_connections(sizes), *_start(sizes)]


def _one_broker() -> list[Measure]:
    section = "One broker"
    return [
        Measure("start", section, "exec to first acknowledged produce", "s", goal=at_most(0.25)),
        Measure("memory-idle", section, "memory when idle", "MB", goal=at_most(45)),
        Measure("memory-loaded", section, "memory after all loads", "MB", goal=at_most(90)),
        Measure("cpu-idle", section, "CPU when idle", "% of a core", goal=at_most(0.5)),
        Measure("produce-1k-rate", section, "produce 1 KB, acks=1, linger 5: rate", "records/s", "higher"),
        Measure("produce-1k-cpu", section, "produce 1 KB, acks=1, linger 5: CPU", "s/GB", goal=at_most(0.60)),
        Measure("produce-100b-rate", section, "produce 100 B: rate", "records/s", "higher"),
        Measure("produce-100b-cpu", section, "produce 100 B: CPU", "µs/record", goal=at_most(0.08)),
        Measure(
            "pipelined-rate",
            section,
            "one record per request, pipelined: rate",
            "requests/s",
            "higher",
            at_least(3, "peer", "Kafka"),
        ),
        Measure("pipelined-cpu", section, "one record per request, pipelined: CPU", "s/million", goal=at_most(22)),
        Measure("one-in-flight-rate", section, "one record per request, one in flight: rate", "requests/s", "higher"),
        Measure(
            "one-in-flight-cpu", section, "one record per request, one in flight: CPU", "s/million", goal=at_most(50)
        ),
        Measure("consume-rate", section, "consume 1 KB from the start: rate", "records/s", "higher"),
        Measure("consume-cpu", section, "consume 1 KB from the start: CPU", "s/GB", goal=at_most(0.40)),
    ]


def _latency() -> list[Measure]:
    section = "Latency, open loop"
    end, ack = "end to end at 2,000/s, linger 0", "acknowledgement at 200,000/s, linger 5"
    half = "end to end at half its own maximum rate, linger 5"
    return [
        Measure("end-p50", section, f"{end}: p50", "ms", goal=at_most(0.3)),
        Measure("end-p99", section, f"{end}: p99", "ms", goal=at_most(2)),
        Measure("end-p99.9", section, f"{end}: p99.9", "ms", goal=at_most(6)),
        Measure("ack-p50", section, f"{ack}: p50", "ms"),
        Measure("ack-p99", section, f"{ack}: p99", "ms", goal=at_most(1, "peer", "Kafka")),
        Measure("ack-p99.9", section, f"{ack}: p99.9", "ms", goal=at_most(1, "peer", "Kafka")),
        Measure("half-rate", section, f"{half}: rate", "records/s", "higher"),
        Measure("half-p50", section, f"{half}: p50", "ms"),
        Measure("half-p99", section, f"{half}: p99", "ms"),
        Measure("half-p99.9", section, f"{half}: p99.9", "ms"),
    ]


def _partitions(sizes: Sizes) -> list[Measure]:
    section = "Growth in partitions"
    found: list[Measure] = []
    for count in sizes.partition_counts:
        grown = count > 1
        produce_goal = at_most(1.5, "partitions-1-produce-cpu", "1 partition") if grown else None
        consume_goal = at_most(1.5, "partitions-1-consume-cpu", "1 partition") if grown else None
        text = f"{count:,} partition{'s' if grown else ''}"
        identity = f"partitions-{count}"
        found += [
            Measure(
                f"{identity}-produce-cpu", section, f"{text}: produce, 64 KB requests: CPU", "s/GB", goal=produce_goal
            ),
            Measure(
                f"{identity}-consume-cpu", section, f"{text}: consume from the start: CPU", "s/GB", goal=consume_goal
            ),
            Measure(
                f"{identity}-spread-cpu", section, f"{text}: produce 1 KB, linger 5, spread by the client: CPU", "s/GB"
            ),
            Measure(
                f"{identity}-spread-rate",
                section,
                f"{text}: produce 1 KB, linger 5, spread by the client: rate",
                "records/s",
                "higher",
            ),
        ]
    return found


def _connections(sizes: Sizes) -> list[Measure]:
    section = "Growth in connections"
    found: list[Measure] = []
    for count in sizes.connection_counts:
        grown = count > 1
        goal = at_most(1.3, "connections-1-in-turn-cpu", "1 connection") if grown else None
        text = f"{count:,} connection{'s' if grown else ''}"
        found.append(
            Measure(f"connections-{count}-in-turn-cpu", section, f"{text}, used in turn: CPU", "s/million", goal=goal)
        )
        if grown:
            found += [
                Measure(f"connections-{count}-busy-cpu", section, f"{text}, all busy: CPU", "s/million"),
                Measure(f"connections-{count}-busy-rate", section, f"{text}, all busy: rate", "requests/s", "higher"),
            ]
    return found


def _start(sizes: Sizes) -> list[Measure]:
    section = "Start after a clean stop"
    many = f"{sizes.many_partitions:,} partitions"
    stored_goal = at_most(1.2, "start-nothing-stored", "nothing stored")
    return [
        Measure("start-one-partition", section, "exec to first acknowledged produce, 1 partition", "s"),
        Measure(
            "start-many-partitions", section, f"exec to first acknowledged produce, {many}", "s", goal=at_most(1.5)
        ),
        Measure("memory-per-partition", section, f"memory per idle partition (of {many})", "KB", goal=at_most(30)),
        Measure("start-nothing-stored", section, "exec to first acknowledged produce, nothing stored", "s"),
        Measure(
            "start-stored",
            section,
            f"exec to first acknowledged produce, {sizes.stored_text} stored",
            "s",
            goal=stored_goal,
        ),
    ]
