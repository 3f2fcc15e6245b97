"""A stream begun with one format and gone on with by the other, from the same checkpoint."""

from collections.abc import Callable
from functools import partial

from compat import spark_topics
from compat.spark_peers import OURS, THEIRS, Peers, answer
from tests.spark_session import Message, produce

PARTITIONS = 2


def checks() -> dict[str, Callable[[Peers], list[str]]]:
    return {
        f'a stream begun with format("{before}") goes on with format("{after}")': partial(
            differences, before=before, after=after
        )
        for before, after in ((THEIRS, OURS), (OURS, OURS))
    }


def differences(peers: Peers, before: str, after: str) -> list[str]:
    topic = f"continued-{before}-{after}"
    spark_topics.create(peers.bootstrap, [topic], PARTITIONS)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "70"}
    checkpoint, target = peers.new_directory(), peers.new_directory()
    for number, form in enumerate((before, after)):
        produce(peers.bootstrap, topic, [Message(b"%d %d" % (number, n), None, n % PARTITIONS) for n in range(150)])
        peers.streamed(form, options, checkpoint, target)
    read = peers.spark.read.schema(peers.batch(OURS, options).schema).parquet(str(target))
    found, expected = answer(read), answer(peers.batch(THEIRS, options))
    return [] if found == expected else [f"{found.row_count} rows were read of {expected.row_count}"]
