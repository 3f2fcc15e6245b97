"""Progress of a running pipeline: on a terminal, in a file, and for Prometheus."""

import io
import urllib.request
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from tidelog.pipelines.running.live_view import PlainScreen, TerminalScreen, duration, is_due, picture, rate, size
from tidelog.pipelines.running.metrics import MetricsEndpoint, text
from tidelog.pipelines.running.progress import PartitionLag, PipelineProgress, QueryKind, QueryProgress, QueryState


def progress(rows: int = 12_345, uptime_s: float = 65.0, partitions: int = 2) -> PipelineProgress:
    lags = tuple(PartitionLag("orders", number, 1000 * number, 10 * number) for number in range(partitions))
    return PipelineProgress(
        "shop",
        (
            QueryProgress(
                "table",
                QueryKind.SINK,
                QueryState.RUNNING,
                batches=7,
                batch_duration_ms=213,
                rows_in=rows,
                rows_out=rows,
                rows_in_per_second=1234.5,
                rows_out_per_second=2.5,
                state_rows=3,
                state_bytes=2048,
                lags=lags,
            ),
            QueryProgress("orders.dead-letters", QueryKind.DEAD_LETTERS, QueryState.WAITING, rows_out=2, restarts=1),
        ),
        uptime_s,
    )


def test_the_picture_shows_queries_and_partitions() -> None:
    assert picture(progress(), rows=40, columns=120) == [
        "shop  running for 65 s, 2 dead letters",
        "",
        "QUERY                STATE     IN/S  OUT/S    READ  WRITTEN  BATCHES  LAST BATCH  LAG  STATE ROWS",
        "table                running  1,234    2.5  12,345   12,345        7      213 ms   10  3 (2.0 kB)",
        "orders.dead-letters  waiting      0      0       0        2        0           -    -           -  1 restart",
        "",
        "PARTITION  POSITION  LAG",
        "orders-0          0    0",
        "orders-1      1,000   10",
    ]


def test_the_partitions_furthest_behind_are_shown_where_there_is_little_room() -> None:
    lines = picture(progress(partitions=50), rows=12, columns=120)
    assert lines[-1].startswith("... and ")
    assert lines[-2].startswith("orders-49")


def test_what_matters_less_is_left_out_of_a_narrow_picture() -> None:
    assert picture(progress(), rows=40, columns=90)[2:5] == [
        "QUERY                STATE     IN/S  OUT/S  LAST BATCH  LAG  STATE ROWS",
        "table                running  1,234    2.5      213 ms   10  3 (2.0 kB)",
        "orders.dead-letters  waiting      0      0           -    -           -  1 restart",
    ]
    stateless = replace(progress(), queries=progress().queries[1:])
    assert picture(stateless, rows=40, columns=100)[2:4] == [
        "QUERY                STATE    IN/S  OUT/S  READ  WRITTEN  BATCHES  LAST BATCH  LAG",
        "orders.dead-letters  waiting     0      0     0        2        0           -    -  1 restart",
    ]


def test_a_terminal_is_drawn_over() -> None:
    output = io.StringIO()
    screen = TerminalScreen(output, "footer")
    screen.show(progress())
    screen.show(progress())
    screen.say("said")
    drawn = output.getvalue()
    assert drawn.count("\x1b[") > 0
    assert "\x1b[12A\r" in drawn
    assert drawn.endswith("said\n")


def test_a_file_gets_a_line_every_ten_seconds_in_which_something_happened() -> None:
    assert not is_due(None, PipelineProgress("shop", (QueryProgress("table", QueryKind.SINK),)))
    assert is_due(None, progress())
    assert not is_due(progress(rows=1), progress(rows=2, uptime_s=70))
    assert is_due(progress(rows=1), progress(rows=2, uptime_s=75))
    assert not is_due(progress(), progress(uptime_s=500))
    output = io.StringIO()
    PlainScreen(output).show(progress())
    assert output.getvalue() == (
        "65 s  table: in 1,234/s, out 2.5/s, 12,345 rows written, lag 10, batch 213 ms"
        " | orders.dead-letters: in 0/s, out 0/s, 2 rows written, lag -, batch -, 2 dead letters\n"
    )


def test_prometheus_reads_the_same() -> None:
    families = {family.name: family for family in text_string_to_metric_families(text(progress()))}
    samples = {
        (sample.name, sample.labels.get("query"), sample.labels.get("partition")): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert samples["tidelog_pipeline_rows_read_total", "table", None] == 12_345
    assert samples["tidelog_pipeline_lag", "table", "1"] == 10
    assert samples["tidelog_pipeline_batch_duration_seconds", "table", None] == 0.213
    assert samples["tidelog_pipeline_query_running", "orders.dead-letters", None] == 0
    assert samples["tidelog_pipeline_dead_letters_total", None, None] == 2
    assert ("tidelog_pipeline_batch_duration_seconds", "orders.dead-letters", None) not in samples


def test_metrics_have_a_page() -> None:
    endpoint = MetricsEndpoint(0, progress)
    try:
        with urllib.request.urlopen(endpoint.address, timeout=60) as response:
            assert b'tidelog_pipeline_uptime_seconds{pipeline="shop"} 65.0' in response.read()
    finally:
        endpoint.close()


def test_numbers_are_written_for_people() -> None:
    assert [duration(seconds) for seconds in (5, 150, 7260)] == ["5 s", "2 min 30 s", "2 h 1 min"]
    assert [size(number) for number in (5, 1536, 3 << 20, 5 << 30)] == ["5 B", "1.5 kB", "3.0 MB", "5.0 GB"]
    assert [rate(number) for number in (0, 0.25, 9.94, 1234567.0)] == ["0", "0.2", "9.9", "1,234,567"]
