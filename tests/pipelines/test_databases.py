"""Tables of databases as sources of a pipeline: parsing, checks, and Spark's reader on Derby, whose jar Spark has."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.broker import TidelogProcess
from tests.spark_session import TopicMaker
from tidelog.pipelines.checks.pipeline_checks import check_file
from tidelog.pipelines.checks.reference_checks import is_bounded
from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import JdbcSource, Pipeline, TableSink
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.replay.replay import planned
from tidelog.pipelines.replay.replay_start import ReplayRejected
from tidelog.pipelines.running.pipeline_run import settings_of_jars
from tidelog.pipelines.running.pipeline_state import PipelineState
from tidelog.pipelines.running.query_runner import Runner
from tidelog.pipelines.running.views import Views, path_for_hadoop
from tidelog.pipelines.tables.exactly_once_writer import read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = """
[sources.orders]
topic = "orders"
format = "json"
schema = "id bigint, customer bigint"
[sources.customers]
{customers}
[[steps]]
view = "named"
sql = "SELECT o.id, c.NAME FROM orders o JOIN customers c ON o.customer = c.ID"
[sinks.out]
from = "named"
delta = "out"
"""
CUSTOMERS = """jdbc = "jdbc:derby:memory:shop"
table = "CUSTOMERS"
options = { fetchsize = 100 }
"""


def parsed(directory: Path, customers: str, more: str = "") -> Pipeline:
    file = directory / "shop.toml"
    file.write_text(FILE.format(customers=customers) + more)
    return load(file, {"SECRET": "s", "TIDELOG_BOOTSTRAP": "localhost:29092"})


def test_a_table_of_a_database_is_a_source(tmp_path: Path) -> None:
    text = 'jdbc = "jdbc:postgresql://db/shop"\nquery = "SELECT 1"\nuser = "me"\npassword = "${SECRET}"\njar = "pg.jar"'
    pipeline = parsed(tmp_path, text, '[spark]\n"spark.jars" = "other.jar"\n')
    source = pipeline.sources[1]
    jar = str(tmp_path / "pg.jar")
    url = "jdbc:postgresql://db/shop"
    assert source == JdbcSource("customers", url, query="SELECT 1", user="me", password="s", jars=(jar,))
    assert "'s'" not in repr(source)
    assert settings_of_jars(pipeline) == {"spark.jars": f"other.jar,{jar}", "spark.driver.extraClassPath": jar}
    assert settings_of_jars(parsed(tmp_path, CUSTOMERS)) == {}


@pytest.mark.parametrize(
    ("customers", "sentence"),
    [
        ('topic = "t"\nonce = true', "a source of topics has no 'once'"),
        ('jdbc = "postgresql://db/shop"\ntable = "t"', "expected a URL such as 'jdbc:postgresql"),
        ('jdbc = "jdbc:x"', "a source of a database needs one of table or query"),
        ('jdbc = "jdbc:x"\ntable = "t"\nquery = "q"', "table and query exclude each other"),
        ('jdbc = "jdbc:x"\ntable = "t"\noptions = { dbtable = "t" }', "dbtable is set by table"),
        ('jdbc = "jdbc:x"\ntable = "t"\nstream = true', "a source of a database has no 'stream'"),
        ('topic = "t"\nquery = "q"', "a source of topics has no 'query'"),
    ],
)
def test_mistakes_in_a_source_of_a_database(tmp_path: Path, customers: str, sentence: str) -> None:
    with pytest.raises(Mistakes) as found:
        parsed(tmp_path, customers)
    assert sentence in str(found.value)


def checked(directory: Path, customers: str, more: str = "") -> list[str]:
    file = directory / "shop.toml"
    file.write_text(FILE.format(customers=customers) + more)
    found = check_file(file, is_offline=True, state_directory=str(directory / "state"))
    return [mistake.sentence for mistake in found.findings]


def test_a_jar_that_is_not_there_and_an_object_store_without_its_client(tmp_path: Path) -> None:
    assert checked(tmp_path, CUSTOMERS) == []
    assert checked(tmp_path, CUSTOMERS + 'jar = "no.jar"') == [f"file {tmp_path / 'no.jar'} does not exist"]
    on_s3 = 'files = "s3://shop/customers/*.csv"\nschema = "ID bigint, NAME string"'
    (warning,) = checked(tmp_path, on_s3)
    assert "org.apache.hadoop:hadoop-aws" in warning
    assert checked(tmp_path, on_s3, '[spark]\n"spark.jars.packages" = "org.apache.hadoop:hadoop-aws:3.5.0"') == []
    assert path_for_hadoop("s3://shop/customers/*.csv") == "s3a://shop/customers/*.csv"


def test_a_sink_needs_a_stream_besides_the_table(tmp_path: Path) -> None:
    (sentence,) = checked(tmp_path, CUSTOMERS, '[sinks.copy]\nfrom = "customers"\ndelta = "copy"\n')
    assert "is computed only from files and tables that are read once" in sentence
    assert "or a database with once = true" in sentence


def test_a_table_that_is_read_once_is_a_stream_that_ends(tmp_path: Path) -> None:
    copy = '[sinks.copy]\nfrom = "customers"\ndelta = "copy"\n'
    assert checked(tmp_path, CUSTOMERS + "once = true", copy) == []
    pipeline = parsed(tmp_path, CUSTOMERS + "once = true", copy)
    assert [is_bounded(pipeline, sink.of) for sink in pipeline.sinks] == [False, True]
    state = PipelineState(tmp_path / "state", "shop")
    with ExitStack() as stack, pytest.raises(ReplayRejected, match="reads the database of source customers once"):
        planned(pipeline, None, state, stack, "copy")


@pytest.fixture
def customers(spark: "SparkSession", tmp_path: Path) -> "Callable[[list[tuple[int, str]]], None]":
    """Writes the table of the database."""
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))

    def write(rows: list[tuple[int, str]]) -> None:
        options = {"url": "jdbc:derby:memory:shop;create=true", "dbtable": "CUSTOMERS"}
        frame = spark.createDataFrame(rows, "ID bigint, NAME string")
        frame.write.format("jdbc").options(**options).mode("overwrite").save()

    return write


@pytest.mark.spark
def test_rows_are_joined_with_those_of_a_database(
    spark: "SparkSession", customers: "Callable[[list[tuple[int, str]]], None]", tmp_path: Path
) -> None:
    customers([(1, "Ada"), (2, "Bob")])

    def orders(_source: object) -> "DataFrame":
        columns = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
        values = [f'{{"id": {number}, "customer": {number % 3}}}'.encode() for number in range(6)]
        return spark.createDataFrame([(None, each, "orders", 0, 0, None) for each in values], columns)

    for source in (CUSTOMERS, 'jdbc = "jdbc:derby:memory:shop"\nquery = "SELECT ID, NAME FROM CUSTOMERS"'):
        views = Views(spark, parsed(tmp_path, source), orders)
        assert sorted(map(tuple, views.frame("named").collect())) == [(1, "Ada"), (2, "Bob"), (4, "Ada"), (5, "Bob")]


ONCE = """
[sources.customers]
jdbc = "jdbc:derby:memory:shop"
table = "CUSTOMERS"
once = true
[sources.cities]
files = "cities.csv"
schema = "ID bigint, CITY string"
[[steps]]
view = "found"
sql = "SELECT c.ID, NAME, CITY FROM customers c JOIN cities USING (ID)"
expect = {{ named = {{ condition = "NAME <> ''", on_violation = "drop" }} }}
[sinks.copy]
from = "found"
delta = "copy"
[sinks.topic]
from = "customers"
topic = "{topic}"
key = "ID"
bootstrap = "{bootstrap}"
"""


@pytest.mark.spark
def test_a_table_is_read_once_into_every_sink(
    spark: "SparkSession",
    running_broker: TidelogProcess,
    new_topic: TopicMaker,
    customers: "Callable[[list[tuple[int, str]]], None]",
    tmp_path: Path,
) -> None:
    """The queries end by themselves. A later run, a lost commit and a changed table add nothing."""
    topic = new_topic()
    customers([(1, "Ada"), (2, ""), (3, "Cy"), (4, "Eve")])
    (tmp_path / "cities.csv").write_text("ID,CITY\n1,Bern\n2,Rome\n3,Oslo\n")
    file = tmp_path / "shop.toml"
    file.write_text(ONCE.format(topic=topic, bootstrap=running_broker.bootstrap))
    pipeline, state = load(file), PipelineState(tmp_path / "[state]", "shop")
    sink = pipeline.sinks[0]
    assert isinstance(sink, TableSink)
    for run in range(2):
        runner = Runner(spark, pipeline, state=state, once=False)
        runner.start()
        runner.run()
        queries = {query.name: query for query in runner.progress().queries}
        assert queries["copy"].rows_out == (0 if run else 2)
        assert run or queries["copy"].violations == {"found.named": 1}
        rows = read_table(sink, state.directory).to_pylist()
        assert sorted((row["ID"], row["NAME"], row["CITY"]) for row in rows) == [(1, "Ada", "Bern"), (3, "Cy", "Oslo")]
        records = spark.read.format("tidelog").option("kafka.bootstrap.servers", running_broker.bootstrap)
        keys = records.option("subscribe", topic).load().collect()
        assert sorted(row.key for row in keys) == [b"1", b"2", b"3", b"4"]
        customers([(9, "Zoe")])
        for name in ("copy", "topic"):
            (state.checkpoint / name / "commits" / "0").unlink()
