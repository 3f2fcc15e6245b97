"""The judge of retention: deletions that came too early are caught, all others pass."""

from collections.abc import Iterator
from unittest.mock import patch

from tests.server.harness import batch_of
from tidelog.cluster import znodes
from tidelog.simulation.chaos import run_seed
from tidelog.simulation.retention_audit import Deletion, RetentionAudit
from tidelog.storage import retention
from tidelog.storage.retention import RetainedLog, _deletable
from tidelog.store.tree import StoredNode
from tidelog.types import TopicPartition

PLACE = TopicPartition("orders", 0)
TRIED = 20


def judged(*, age_ms: int, kept_bytes: int = 0, start: int = 1, high_watermark: int = 1, **configs: str) -> list[str]:
    audit = RetentionAudit()
    batch = batch_of(b"x")
    audit.on_appended(PLACE, None, [batch])
    written_ms = audit._timestamps[None, PLACE][0]
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    nodes = {znodes.topic_config_path("orders"): StoredNode(znodes.encode_config(settings), 0, 1, 1, 0, 0)}
    deletion = Deletion(PLACE, None, 0, start, kept_bytes, high_watermark, written_ms + age_ms)
    return list(audit.on_deleted(deletion, nodes))


def test_records_may_go_when_they_are_older_than_their_topic_keeps_them() -> None:
    assert judged(age_ms=4001, retention_ms="4000") == []
    assert len(judged(age_ms=4000, retention_ms="4000")) == 1
    assert len(judged(age_ms=4001)) == 1
    assert len(judged(age_ms=10**12, retention_ms="-1")) == 1
    assert len(judged(age_ms=4001, retention_ms="4000", cleanup_policy="compact")) == 1


def test_records_may_go_while_enough_bytes_are_kept() -> None:
    assert judged(age_ms=0, kept_bytes=500, retention_bytes="500") == []
    assert len(judged(age_ms=0, kept_bytes=499, retention_bytes="500")) == 1


def test_nothing_goes_that_is_not_committed() -> None:
    assert len(judged(age_ms=4001, start=2, high_watermark=1, retention_ms="4000")) == 1


def too_early(log: RetainedLog, now_ms: int) -> int:
    """A tenth of the time is enough."""

    def counted() -> Iterator[int]:
        for segment, _ in _deletable(log):
            if now_ms - segment.largest_timestamp() <= log.settings.retention_ms / 10:
                return
            yield 1

    return sum(counted()) if log.settings.retention_ms >= 0 else 0


def test_a_broker_that_deletes_too_early_is_noticed() -> None:
    with patch.object(retention, "_count_by_time", too_early):
        found = (line for seed in range(1, TRIED) for line in run_seed(seed, frozenset({"retention"})).violations)
        assert "too early" in next(found, "")
