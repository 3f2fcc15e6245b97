"""From Spark's progress events to rows per second, lag and state."""

from typing import Any

from tidelog.pipelines.running.progress import (
    SOURCE_PREFIX,
    WRITTEN,
    PipelineProgress,
    QueryKind,
    QueryMeter,
    QueryProgress,
    QueryState,
    count_new_events,
    lags_of,
)


def event(batch_id: int, rows: int, written: int, **more: Any) -> dict[str, Any]:
    return {
        "batchId": batch_id,
        "numInputRows": rows,
        "durationMs": {"addBatch": 80, "triggerExecution": 100},
        "observedMetrics": {WRITTEN: {"rows": written}},
        **more,
    }


def meter() -> QueryMeter:
    return QueryMeter("table", QueryKind.SINK, started_s=0.0)


def test_rows_per_second_are_those_of_the_last_ten_seconds() -> None:
    query = meter()
    query.on_progress(event(0, 1000, 500), now_s=20.0)
    query.on_progress(event(1, 3000, 1500), now_s=25.0)
    found = query.progress(now_s=26.0)
    assert (found.rows_in, found.rows_out, found.batches, found.batch_id) == (4000, 2000, 2, 1)
    assert (found.rows_in_per_second, found.rows_out_per_second) == (400.0, 200.0)
    assert query.progress(now_s=31.0).rows_in_per_second == 300.0
    assert query.progress(now_s=36.0).rows_in_per_second == 0.0
    assert query.progress(now_s=36.0).rows_in == 4000


def test_a_young_query_is_measured_by_its_age() -> None:
    query = meter()
    query.on_progress(event(0, 1000, 0), now_s=2.0)
    assert query.progress(now_s=2.0).rows_in_per_second == 500.0


def test_a_query_runs_from_its_first_micro_batch_on() -> None:
    query = meter()
    query.on_progress({"durationMs": {"triggerExecution": 5}, "numInputRows": 0}, now_s=1.0)
    assert (query.progress(1.0).state, query.progress(1.0).batches) == (QueryState.STARTING, 0)
    query.on_progress(event(0, 1, 1), now_s=2.0)
    assert query.progress(2.0).state is QueryState.RUNNING
    assert query.progress(2.0).batch_duration_ms == 100


def test_state_bad_records_and_watermark_are_read() -> None:
    query = meter()
    operators = [{"numRowsTotal": 3, "memoryUsedBytes": 100}, {"numRowsTotal": 4, "memoryUsedBytes": 50}]
    observed = {f"{SOURCE_PREFIX}orders": {"rows": 10, "bad": 2}}
    shown = event(0, 10, 0, stateOperators=operators, observedMetrics=observed, eventTime={"watermark": "12:00"})
    query.on_progress(shown, now_s=1.0)
    query.on_progress(shown, now_s=2.0)
    found = query.progress(2.0)
    assert (found.state_rows, found.state_bytes, found.watermark) == (7, 150, "12:00")
    assert found.bad_records == {"orders": 4}


def test_rows_that_a_sink_counts_itself_are_added() -> None:
    query = meter()
    query.on_written(7, now_s=1.0)
    assert query.progress(1.0).rows_out == 7


def test_lag_is_what_lies_between_position_and_end() -> None:
    sources: list[dict[str, Any]] = [
        {"endOffset": {"orders": {"0": 5, "1": 7}, "@topicIds": {"orders": "x"}}, "latestOffset": {"orders": {"0": 9}}},
        {"endOffset": {"logOffset": 3}, "latestOffset": None},
        {"endOffset": None, "latestOffset": None},
    ]
    assert [
        tuple(getattr(lag, name) for name in ("topic", "partition", "position", "lag")) for lag in lags_of(sources)
    ] == [
        ("orders", 0, 5, 4),
        ("orders", 1, 7, None),
    ]


def test_a_topic_read_twice_counts_where_it_is_furthest_behind() -> None:
    latest = {"a": {"0": 10}}
    sources: list[dict[str, Any]] = [
        {"endOffset": {"a": {"0": 8}}, "latestOffset": latest},
        {"endOffset": {"a": {"0": 3}}, "latestOffset": latest},
    ]
    (lag,) = lags_of(sources)
    assert lag.lag == 7


def test_dead_letters_are_not_counted_again_as_skipped() -> None:
    queries = (
        QueryProgress("orders.dead-letters", QueryKind.DEAD_LETTERS, rows_out=5, bad_records={"orders": 5}),
        QueryProgress("a", QueryKind.SINK, bad_records={"orders": 5, "payments": 2}),
        QueryProgress("b", QueryKind.SINK, bad_records={"orders": 4, "payments": 3}),
    )
    progress = PipelineProgress("shop", queries)
    assert (progress.dead_letters, progress.skipped_records) == (5, 3)
    assert progress.as_json()["queries"][0]["kind"] == "dead letters"


def test_only_events_after_the_last_one_seen_are_new() -> None:
    events = [("0", "a"), ("1", "b"), ("2", "c")]
    assert count_new_events(reversed(events), None) == 3
    assert count_new_events(reversed(events), ("1", "b")) == 1
    assert count_new_events(reversed(events), ("2", "c")) == 0
    assert count_new_events(reversed(events), ("9", "gone")) == 3
    assert count_new_events([], ("1", "b")) == 0
