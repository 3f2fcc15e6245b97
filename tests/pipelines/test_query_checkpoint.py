"""Progress of a query, as read from Spark's checkpoints."""

import json
from pathlib import Path

import pytest

from tidelog.pipelines.replay.query_checkpoint import BadCheckpoint, QueryCheckpoint, ends_in
from tidelog.types import TopicPartition

ABOUT_THE_BATCH = '{"batchWatermarkMs":0,"batchTimestampMs":1794806828534,"conf":{}}'


def log_text(*sources: str) -> str:
    return "\n".join(["v1", ABOUT_THE_BATCH, *sources])


def checkpoint_in(directory: Path, planned: int, committed: int) -> QueryCheckpoint:
    (directory / "metadata").write_text('{"id":"15b0464d"}')
    for name, last in (("offsets", planned), ("commits", committed)):
        (directory / name).mkdir()
        for batch_id in range(last + 1):
            (directory / name / str(batch_id)).write_text(log_text(json.dumps({"orders": {"0": batch_id * 10}})))
            (directory / name / f".{batch_id}.crc").write_text("")
    return QueryCheckpoint(str(directory))


def test_batches_are_planned_and_then_committed(tmp_path: Path) -> None:
    checkpoint = checkpoint_in(tmp_path, planned=12, committed=11)
    assert checkpoint.query_id() == "15b0464d"
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (12, 11)
    assert checkpoint.end_of(11).offsets == {TopicPartition("orders", 0): 110}


def test_an_empty_checkpoint_knows_nothing(tmp_path: Path) -> None:
    checkpoint = QueryCheckpoint(str(tmp_path / "none"))
    assert (checkpoint.last_planned(), checkpoint.last_committed()) == (None, None)
    with pytest.raises(BadCheckpoint, match=r"no checkpoint in .*none: run the pipeline first"):
        checkpoint.query_id()
    (tmp_path / "metadata").write_text("torn")
    with pytest.raises(BadCheckpoint, match="is damaged"):
        QueryCheckpoint(str(tmp_path)).query_id()


def test_a_batch_that_only_the_table_knows_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match="does not have batch 40, which the table holds: it is an older copy"):
        checkpoint_in(tmp_path, planned=3, committed=3).end_of(40)


def test_the_ends_of_several_sources_are_put_together() -> None:
    found = ends_in(log_text('{"a": {"0": 1}, "@topicIds": {"a": "TF-5q0eQQjSklqcvm6qcmg"}}', "-", '{"b": {"3": 2}}'))
    assert found.offsets == {TopicPartition("a", 0): 1, TopicPartition("b", 3): 2}
    assert list(found.topic_ids) == ["a"]


def test_a_topic_that_two_sources_read_must_be_read_equally_far() -> None:
    line = '{"a": {"0": 1, "1": 5}}'
    assert ends_in(log_text(line, line)).offsets[TopicPartition("a", 1)] == 5
    with pytest.raises(BadCheckpoint, match="a-1 is read by two sources, up to offset 5 and up to 6"):
        ends_in(log_text(line, '{"a": {"0": 1, "1": 6}}'))


@pytest.mark.parametrize("line", ['{"logOffset":3}', "17", "[1]"])
def test_sources_that_are_no_topics_are_reported(line: str) -> None:
    with pytest.raises(BadCheckpoint, match="a streaming source that is not a topic"):
        ends_in(log_text(line))


def test_other_versions_are_refused() -> None:
    for text in ("", "v2\n{}\n{}"):
        with pytest.raises(BadCheckpoint, match="unknown checkpoint format"):
            ends_in(text)
