"""The ready pipelines and the tutorial on changes, tried as newcomers try them: every command as it stands there."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.local_cluster import LocalCluster, local_cluster
from tests.cli.process import tidelog
from tests.spark.pyspark_version import needs_several_micro_batches

TIME_LIMIT_S = 500
COMMAND = "#   "
UP = "tidelog up --detach"
ORDERS = 1000
TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial-changes.md"
DASHBOARD = "python dashboard.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster") / "data", brokers=3) as running:
        running.up()
        yield running


def written(template: str, directory: Path) -> list[str]:
    """The commands at the head of the template, after `tidelog pipeline new`."""
    ended = tidelog("pipeline", "new", template, directory=directory)
    assert ended.returncode == 0, ended
    lines = (directory / f"{template}.toml").read_text().splitlines()
    commands = [line.removeprefix(COMMAND) for line in lines if line.startswith(COMMAND)]
    assert commands[0].startswith(UP)
    return commands[1:]


def typed(commands: list[str], cluster: LocalCluster, directory: Path) -> str:
    """What a shell says to them, until the first that fails."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TIDELOG_BOOTSTRAP": cluster.bootstrap,
        "TIDELOG_PIPELINES": str(directory / "pipelines"),
    }
    ended = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", "\n".join(commands)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        cwd=directory,
        env=os.environ | environment,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def records(cluster: LocalCluster, topic: str) -> list[Any]:
    ended = tidelog("consume", topic, "--from-beginning", "--timeout", "2", "--json", "--bootstrap", cluster.bootstrap)
    assert ended.returncode == 0, ended
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.spark
def test_topic_to_table_runs_as_written(cluster: LocalCluster, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    said = typed(written("topic-to-table", tmp_path), cluster, tmp_path)
    assert "topic-to-table.toml is valid: pipeline orders-to-table, 1 source, 1 step, 1 sink" in said
    assert f"orders-to-table: done, 1 row to orders.dead-letters, {ORDERS:,} rows to table" in said
    assert f"\n{ORDERS}\n" in said

    rows = DeltaTable(str(tmp_path / "tables" / "orders")).to_pyarrow_table().to_pylist()
    assert sorted(row["order_id"] for row in rows) == list(range(1, ORDERS + 1))
    assert sum(row["amount"] for row in rows) == pytest.approx(sum(round(n / 7, 2) for n in range(1, ORDERS + 1)))
    assert all(row["is_large"] == (row["amount"] >= 100) for row in rows)
    assert {str(row["day"]) for row in rows} == {"2026-01-31"}

    (dead,) = records(cluster, "orders.dead")
    assert dead["value"] == "this is not JSON"
    headers = {header["key"]: header["value"] for header in dead["headers"]}
    assert headers["tidelog.error"] == "the value is not JSON"
    assert headers["tidelog.topic"] == "orders"


@pytest.mark.spark
@needs_several_micro_batches
def test_enrichment_runs_as_written(cluster: LocalCluster, tmp_path: Path) -> None:
    """On a topic in which the orders may be twice, as the other pipeline's first lines write the same ones."""
    typed(["echo 'this is not JSON' | tidelog produce orders"], cluster, tmp_path)
    said = typed(written("enrichment", tmp_path), cluster, tmp_path)
    assert "enrichment.toml is valid: pipeline order-totals, 2 sources, 3 steps, 2 sinks" in said

    enriched = [json.loads(record["value"]) for record in records(cluster, "orders.enriched")]
    assert {order["order_id"]: order["country"] for order in enriched} == {
        number: country_of(number) for number in range(1, ORDERS + 1)
    }
    assert len(enriched) == ORDERS

    totals = [json.loads(record["value"]) for record in records(cluster, "orders.per-minute")]
    found = {(total["window_start"], total["country"]): (total["orders"], total["revenue"]) for total in totals}
    assert found == expected_totals()
    assert len(totals) == len(found)

    (status,) = json.loads(typed(["tidelog pipeline status --json"], cluster, tmp_path))
    assert status["state"] == "stopped"
    assert status["progress"]["skipped_records"] >= 1


@pytest.mark.spark
def test_minimal_runs_as_written(cluster: LocalCluster, tmp_path: Path) -> None:
    said = typed(written("minimal", tmp_path), cluster, tmp_path)
    assert "minimal.toml is valid: pipeline minimal, 1 source, 0 steps, 1 sink" in said
    assert f"minimal: done, {ORDERS:,} rows to copy" in said
    copied = [record["value"] for record in records(cluster, "copy")]
    assert sorted(copied, key=int) == [str(number) for number in range(1, ORDERS + 1)]


@pytest.mark.spark
def test_tutorial_on_changes_runs_as_written(cluster: LocalCluster, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    text = TUTORIAL.read_text()
    commands = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert sum(DASHBOARD in block for block in commands) == 2
    has_duckdb = find_spec("duckdb") is not None
    said = typed([block if has_duckdb else block.replace(DASHBOARD, "") for block in commands], cluster, tmp_path)
    rows = DeltaTable(str(tmp_path / "tables" / "orders")).to_pyarrow_table().to_pylist()
    expected = {number: "paid" if number <= 400 else "open" for number in (*range(1, 951), *range(1001, 1101))}
    assert {row["id"]: row["status"] for row in rows} == expected
    assert len(rows) == len(expected)
    if not has_duckdb:
        pytest.skip("DuckDB is not installed: the dashboard was not shown")
    shown = re.findall(r"^┌.*?┘$", said, re.DOTALL | re.MULTILINE)
    assert shown == re.findall(r"^┌.*?┘$", text, re.DOTALL | re.MULTILINE), said


def country_of(order: int) -> str:
    return "Portugal" if order % 50 % 3 else "Japan"


def expected_totals() -> dict[tuple[str, str], Any]:
    """Of the windows that the watermark has passed: a minute before the youngest order, of 12:50."""
    amounts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for order in range(1, ORDERS + 1):
        if order // 20 < 49:
            start = f"2026-01-31T12:{order // 20:02}:00.000Z"
            amounts[start, country_of(order)].append(round(order / 7, 2))
    return {key: (len(found), pytest.approx(sum(found))) for key, found in amounts.items()}
