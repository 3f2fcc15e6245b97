"""The programs of docs/spark.md, run as they stand there."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.broker import TidelogProcess
from tests.spark_session import Message, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.spark
def test_programs_of_the_page_run(
    spark: "SparkSession", running_broker: TidelogProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(running_broker.bootstrap, "orders", [Message(f"tea {number}".encode(), b"k") for number in range(3)])
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for program in programs:
        here = program.replace("localhost:29092", running_broker.bootstrap)
        here = re.sub('"(checkpoint(?: [^"]*)?|tables/[^"]*)"', lambda found: repr(str(tmp_path / found[1])), here)
        here = here.replace("metrics_port=9200", "metrics_port=0")
        assert "localhost" not in here
        exec(here, names)
    assert "tea 2" in capsys.readouterr().out
    upper = names["spark"].read.format("tidelog").option("kafka.bootstrap.servers", running_broker.bootstrap)
    rows = upper.option("subscribe", "orders.upper").load().orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"TEA 0", b"TEA 1", b"TEA 2"]
