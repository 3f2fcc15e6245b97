"""The table of what is measured of moves between three brokers."""

from bench.measures import Measure, Sizes, at_most

SECTION = "Three brokers: a topic moves from brokers 1 and 2 to broker 3"
LATENCY_PERCENTS = (50, 99)


def move_measures(sizes: Sizes) -> list[Measure]:
    size = f"{sizes.move_bytes / 1e9:g} GB"
    throttled = f"{size} at {sizes.move_rate / 1e6:g} MB/s"
    producer = "500/s, linger 0, acks=all, to another topic"
    found = [
        Measure("move-idle-cpu", SECTION, "CPU of all three when idle", "% of a core"),
        Measure("move-idle-memory", SECTION, "memory of all three when idle", "MB"),
        Measure("move-rate", SECTION, f"{size}, no throttle: rate", "MB/s", "higher"),
        Measure("move-cpu", SECTION, f"{size}, no throttle: CPU of all three", "s/GB"),
        Measure(
            "move-throttled-time", SECTION, f"{throttled}: time, as a part of what it must take", "", goal=at_most(1.15)
        ),
    ]
    for percent in LATENCY_PERCENTS:
        alone = f"move-alone-p{percent:g}"
        found += [
            Measure(alone, SECTION, f"{producer}, alone: p{percent:g}", "ms"),
            Measure(
                f"move-beside-p{percent:g}",
                SECTION,
                f"{producer}, beside {throttled}: p{percent:g}",
                "ms",
                goal=at_most(1.5, alone, "alone"),
            ),
        ]
    return found
