"""Errors as users see them: our sentence without a Python stack; for a bug, its stack."""

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader

from tests.clients.broker import TidelogProcess
from tests.spark.queries import Reader, numbered
from tests.spark_session import TopicMaker, produce
from tidelog.pipelines.running.failures import failure_of
from tidelog.spark.accelerators.error_texts import HIDE_STACK, only_the_sentence
from tidelog.spark.errors import BrokersUnavailable, UnknownTopic
from tidelog.spark.options.values import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_BROKER = "127.0.0.1:9"


@pytest.fixture
def reader(spark: "SparkSession", running_broker: TidelogProcess, new_topic: TopicMaker) -> Reader:
    topic = new_topic()
    produce(running_broker.bootstrap, topic, numbered(3))
    return Reader(spark, running_broker.bootstrap, topic)


def ended(frame: "DataFrame", checkpoint: Path, sink: str = "noop", **options: str) -> None:
    writer = frame.writeStream.format(sink).options(checkpointLocation=str(checkpoint), **options)
    assert writer.trigger(availableNow=True).start().awaitTermination(300)


def written(reader: Reader, **options: Any) -> None:
    settings = {"kafka.bootstrap.servers": reader.bootstrap, "topic": reader.topic, **options}
    reader.batch().select("value").write.format("tidelog").mode("append").options(**settings).save()


def stream_written(reader: Reader, checkpoint: Path, **options: Any) -> None:
    settings = {"kafka.bootstrap.servers": reader.bootstrap, "topic": reader.topic, **options}
    ended(reader.stream().select("value"), checkpoint, "tidelog", **settings)


def is_one_sentence(error: BaseException, sentence: str) -> bool:
    """As a pipeline finds it, too."""
    text = str(error)
    return sentence in text and "Traceback" not in text and failure_of(text).sentence == sentence


# -- in Spark


@pytest.mark.spark
def test_an_unknown_option_is_a_sentence_without_a_stack(reader: Reader, tmp_path: Path) -> None:
    read = "Option 'startingoffset' is not known; did you mean 'startingOffsets'?"
    write = "Option 'topik' is not known; did you mean 'topic'?"
    with pytest.raises(Exception, match="did you mean") as raised:
        reader.batch(startingOffset="earliest").collect()
    assert is_one_sentence(raised.value, read), raised.value
    with pytest.raises(Exception, match="did you mean") as raised:
        ended(reader.stream(startingOffset="earliest"), tmp_path / "read")
    assert is_one_sentence(raised.value, read), raised.value
    with pytest.raises(Exception, match="did you mean") as raised:
        written(reader, topik="x")
    assert is_one_sentence(raised.value, write), raised.value
    with pytest.raises(Exception, match="did you mean") as raised:
        stream_written(reader, tmp_path / "write", topik="x")
    assert is_one_sentence(raised.value, write), raised.value


@pytest.mark.spark
def test_a_topic_that_does_not_exist_is_a_sentence_without_a_stack(reader: Reader, tmp_path: Path) -> None:
    reader.topic = "nowhere"
    with pytest.raises(Exception, match="nowhere") as raised:
        reader.batch().collect()
    assert is_one_sentence(raised.value, "topic 'nowhere' does not exist"), raised.value
    with pytest.raises(Exception, match="nowhere") as raised:
        ended(reader.stream(), tmp_path)
    assert is_one_sentence(raised.value, "topic 'nowhere' does not exist"), raised.value


@pytest.mark.spark
def test_brokers_that_are_away_from_a_task_are_still_a_reason_that_passes(reader: Reader) -> None:
    with pytest.raises(Exception, match=NO_BROKER) as raised:
        written(reader, **{"kafka.bootstrap.servers": NO_BROKER, "kafka.max.block.ms": "300"})
    assert "Traceback" not in str(raised.value)
    assert failure_of(str(raised.value)).is_transient


@pytest.mark.spark
def test_a_bug_keeps_its_stack(spark: "SparkSession") -> None:
    class Broken(DataSource):
        @classmethod
        def name(cls) -> str:
            return "broken"

        def schema(self) -> str:
            return "value binary"

        def reader(self, schema: Any) -> DataSourceReader:
            with only_the_sentence():
                raise ZeroDivisionError("a bug")

    spark.dataSource.register(Broken)
    with pytest.raises(Exception, match="ZeroDivisionError: a bug") as raised:
        spark.read.format("broken").load().collect()
    assert "Traceback" in str(raised.value)
    assert "in reader" in str(raised.value)


# -- in any process


@pytest.fixture
def of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setenv(HIDE_STACK, "")


@only_the_sentence()
def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [OptionError("x"), UnknownTopic("x"), BrokersUnavailable("x")])
@pytest.mark.usefixtures("of_spark")
def test_an_error_for_users_hides_the_stack_of_a_process_of_spark(error: Exception) -> None:
    with pytest.raises(type(error)):
        fail(error)
    assert os.environ[HIDE_STACK]


@pytest.mark.parametrize("error", [ValueError("x"), AssertionError("x"), KeyError("x")])
@pytest.mark.usefixtures("of_spark")
def test_another_error_hides_nothing(error: Exception) -> None:
    with pytest.raises(type(error)):
        fail(error)
    assert not os.environ[HIDE_STACK]


@pytest.mark.parametrize("name", ["pytest.__main__", "pyspark_tools.main"])
def test_a_users_program_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE_STACK, "")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(name, None))
    with pytest.raises(OptionError):
        fail(OptionError("x"))
    assert not os.environ[HIDE_STACK]
