"""The table of what is measured with TLS: a line per figure, with its unit, its direction and its goal."""

from bench.measures import Measure, Sizes, at_most

SECTION = "With TLS 1.3 to clients and between brokers"
ROWS = (
    ("tls-produce", "one broker, produce 1 KB, linger 5", "CPU"),
    ("tls-consume", "one broker, consume 1 KB", "CPU"),
    ("tls-cluster", "three brokers, factor 3, acks=all, produce 1 KB, 12 partitions", "CPU of all three"),
)


def tls_measures(_: Sizes) -> list[Measure]:
    return [
        measure
        for identity, title, of_whom in ROWS
        for measure in (
            Measure(f"{identity}-rate", SECTION, f"{title}: rate", "MB/s", "higher"),
            Measure(f"{identity}-cpu", SECTION, f"{title}: {of_whom}", "s/GB", goal=at_most(1, "peer", "Kafka")),
        )
    ]
