"""Spark's checks of a pipeline's SQL and expressions before it runs."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines.checks.pipeline_checks import check_file
from tidelog.pipelines.checks.spark_checks import Analysis
from tidelog.pipelines.running.failures import PipelineFailed
from tidelog.pipelines.running.pipeline_run import start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
[pipeline]
bootstrap = "localhost:1"

[sources.orders]
topic = "orders"
format = "json"
schema = "id bigint, amount double, at timestamp"

[[steps]]
view = "priced"
sql = '''
{sql}
'''

[[steps]]
view = "later"
sql = "SELECT * FROM priced"

[sinks.table]
from = "later"
{sink}
"""


def found(spark: "SparkSession", directory: Path, sql: str, sink: str = 'delta = "table"') -> list[str]:
    file = directory / "shop.toml"
    file.write_text(PIPELINE.format(sql=sql, sink=sink))
    checked = check_file(
        file,
        is_offline=True,
        state_directory=str(directory / "state"),
        ask_spark=lambda *parts: Analysis(spark, *parts).check(),
    )
    return [mistake.text("shop.toml") for mistake in checked.mistakes]


@pytest.mark.spark
def test_sql_is_analysed_without_running_it(spark: "SparkSession", tmp_path: Path) -> None:
    assert found(spark, tmp_path, "SELECT id, amount FROM orders") == []
    assert found(spark, tmp_path, "SELEC id FROM orders") == [
        "shop.toml:13: steps.1.sql: Syntax error at or near 'SELEC'"
    ]
    assert found(spark, tmp_path, "SELECT id,\n  amuont\nFROM orders") == [
        "shop.toml:14: steps.1.sql: A column, variable, or function parameter with name `amuont` cannot be resolved."
        " Did you mean one of the following? [`amount`, `_key`, `at`, `id`, `_topic`]"
    ]
    assert found(spark, tmp_path, "SELECT nofunction(id) AS id FROM orders")[0].startswith(
        "shop.toml:13: steps.1.sql: Cannot resolve routine `nofunction`"
    )


@pytest.mark.spark
def test_sinks_are_analysed_too(spark: "SparkSession", tmp_path: Path) -> None:
    (sorted_rows,) = found(spark, tmp_path, "SELECT id FROM orders ORDER BY id")
    assert sorted_rows.startswith("shop.toml:20: sinks.table: Sorting is not supported on streaming")
    (grouped,) = found(spark, tmp_path, "SELECT id, count(*) AS n FROM orders GROUP BY id")
    assert "output mode" in grouped
    (key,) = found(spark, tmp_path, "SELECT id FROM orders", 'topic = "out"\nkey = "upper(nobody)"')
    assert "`nobody` cannot be resolved" in key
    (day,) = found(spark, tmp_path, "SELECT id FROM orders", 'delta = "table"\npartition_by = ["day = date(nowhen)"]')
    assert "`nowhen` cannot be resolved" in day
    (void,) = found(spark, tmp_path, "SELECT id, null AS nothing FROM orders")
    assert "Column 'nothing' is void" in void


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_command_asks_spark_and_prints_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(PIPELINE.format(sql="SELEC id FROM orders", sink='delta = "table"'))
    command = [sys.executable, "-m", "tidelog", "pipeline", "check", str(file), "--offline"]
    checked = subprocess.run(
        [*command, "--state", str(tmp_path / "state")], capture_output=True, text=True, timeout=500, check=False
    )
    assert checked.stdout == f"{file}:13: steps.1.sql: Syntax error at or near 'SELEC'\n1 mistake\n"
    assert (checked.returncode, checked.stderr) == (1, "")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        (
            b"Unrecognized VM option 'Bogus'\nError: Could not create the Java Virtual Machine.\n",
            "Unrecognized.*Bogus'",
        ),
        (b"/jdk/bin/java: wrong ELF class\n/bin/spark-class: line 97: CMD: bad array subscript\n", ".*wrong ELF class"),
        (b"/bin/spark-class: line 97: CMD: bad array subscript\n", ".*/bin/java ended without a message"),
    ],
)
def test_a_java_that_does_not_start_is_reported_by_its_own_words(
    printed: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyspark.java_gateway

    def fail(_conf: object, popen: dict[str, object]) -> None:
        popen["stderr"].write(printed)  # type: ignore[attr-defined]
        popen["stderr"].flush()  # type: ignore[attr-defined]
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr(pyspark.java_gateway, "launch_gateway", fail)
    with pytest.raises(PipelineFailed, match=f"^Java did not start: {reason}$"):
        start_java("local[1]", {}, tmp_path / "log.txt")
