"""The programs of the pages on Spark Connect and Declarative Pipelines; they need `tidelog[connect]`."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.clients.broker import TidelogProcess
from tests.pipelines.test_runner import consumed
from tests.spark_session import Message, TopicMaker, produce
from tidelog.spark.accelerators.python_launcher import python_command
from tidelog.spark.java import choose_java

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _needs_connect() -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs pip install 'tidelog[connect]'")


def run(*command: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    choose_java()
    # Spark gives a Python process of a source ten seconds to start: without the launcher a busy machine needs more.
    python = python_command()
    own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    own["SPARK_TESTING"] = "1"  # a server of its own on a free port; else on 15002, which may be taken
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


def ids(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


def program_of(page: str) -> str:
    """The Python on a page."""
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return str(program)


def with_names(program: str, names: dict[str, str]) -> str:
    """With other strings in it."""
    for name, here in names.items():
        assert f'"{name}"' in program
        program = program.replace(f'"{name}"', repr(here))
    return program


RELATIVE = """
from tidelog.spark.options.values import OptionError
try:
    table(delta="here", name="here")
except OptionError as error:
    print(error)
query = writers["copy"].option("delta", "there").option("checkpointLocation", "/checkpoints/there").start()
try:
    query.awaitTermination()
except Exception as error:
    print(error)
"""


def test_a_program_of_spark_connect(running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path) -> None:
    topic, out = new_topic(suffix=".in"), new_topic(suffix=".out")
    produce(running_broker.bootstrap, topic, [Message(str(number).encode()) for number in range(10)])
    names = {"localhost:29092": running_broker.bootstrap, "orders.doubled": out}
    program = with_names(program_of("spark-connect.md"), names).replace('subscribe="orders"', f"subscribe={topic!r}")
    program = program.replace("spark.stop()", f"{RELATIVE}spark.stop()")
    program = re.sub('"/(tables|checkpoints)/', f'"{tmp_path}/\\1/', program)
    ended = run(sys.executable, "-c", program, directory=tmp_path)
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert ids(tmp_path / "tables" / "orders") == list(range(10))
    assert ids(tmp_path / "tables" / "copy") == list(range(10))
    assert "delta = 'here' is a relative path" in ended.stdout
    assert "delta = 'there' is a relative path" in ended.stdout
    values = [int(message.value()) for message in consumed(running_broker.bootstrap, out, 10)]
    assert sorted(values) == [2 * number for number in range(10)]


def test_a_declarative_pipeline(running_broker: TidelogProcess, new_topic: TopicMaker, tmp_path: Path) -> None:
    """A project as Spark makes it, with a streaming table, a materialized view, a topic and an exactly-once table."""
    command = shutil.which(
        "spark-pipelines", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if command is None:
        pytest.skip("spark-pipelines is not installed beside this Python")

    def spark_pipelines(*arguments: str, directory: Path) -> None:
        ended = run(command, *arguments, directory=directory)
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-5000:]

    topic, out, table = new_topic(suffix=".in"), new_topic(suffix=".out"), tmp_path / "orders"
    produce(running_broker.bootstrap, topic, [Message(str(number).encode()) for number in range(10)])
    spark_pipelines("init", "--name", "shop", directory=tmp_path)
    project = tmp_path / "shop"
    names = {"localhost:29092": running_broker.bootstrap, "orders.copy": out, "/tables/orders": str(table)}
    program = with_names(program_of("spark-declarative-pipelines.md"), names)
    program = program.replace('"subscribe", "orders"', f'"subscribe", {topic!r}')
    (project / "transformations" / "shop.py").write_text(program)
    warehouse = f"spark.sql.warehouse.dir={tmp_path / 'warehouse'}"  # static: not in the project's file
    options = ("--remote", "local[2]", "--conf", warehouse)
    spark_pipelines("dry-run", *options, directory=project)
    assert not table.exists()
    spark_pipelines("run", *options, directory=project)
    assert ids(table) == list(range(10))
    assert sorted(int(message.value()) for message in consumed(running_broker.bootstrap, out, 10)) == list(range(10))
    rows = pq.read_table(tmp_path / "warehouse" / "counted").to_pylist()
    assert rows == [{"topic": topic, "count": 10}]
