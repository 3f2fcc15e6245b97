"""Tables of databases as sources of a pipeline: parsing, checks, and Spark's reader on Derby, whose jar Spark has."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidelog.pipelines.checks.pipeline_checks import check_file
from tidelog.pipelines.definition.mistakes import Mistakes
from tidelog.pipelines.definition.model import JdbcSource, Pipeline
from tidelog.pipelines.definition.parsing import load
from tidelog.pipelines.running.pipeline_run import settings_of_jars
from tidelog.pipelines.running.views import Views, path_for_hadoop

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


@pytest.mark.spark
def test_rows_are_joined_with_those_of_a_database(spark: "SparkSession", tmp_path: Path) -> None:
    assert spark._jvm is not None
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = "jdbc:derby:memory:shop;create=true"
    names = spark.createDataFrame([(1, "Ada"), (2, "Bob")], "ID bigint, NAME string")
    names.write.format("jdbc").options(url=url, dbtable="CUSTOMERS").mode("overwrite").save()

    def orders(_source: object) -> "DataFrame":
        columns = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
        values = [f'{{"id": {number}, "customer": {number % 3}}}'.encode() for number in range(6)]
        return spark.createDataFrame([(None, each, "orders", 0, 0, None) for each in values], columns)

    for customers in (CUSTOMERS, 'jdbc = "jdbc:derby:memory:shop"\nquery = "SELECT ID, NAME FROM CUSTOMERS"'):
        views = Views(spark, parsed(tmp_path, customers), orders)
        assert sorted(map(tuple, views.frame("named").collect())) == [(1, "Ada"), (2, "Bob"), (4, "Ada"), (5, "Bob")]
