"""Queries against a broker with SASL_SSL, and their secrets, which Spark must never show or store."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.certificates import Authority
from tests.clients.broker import ApacheKafkaProcess, BrokerProcess, TidelogProcess, running
from tools.apache_kafka import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PASSWORD = "hunter2-of-spark"
MODULES = "org.apache.kafka.common.security"
JAAS = f'{MODULES}.plain.PlainLoginModule required username="spark" password="{{}}" user_spark="{PASSWORD}";'


def apache_kafka(directory: Path, settings: dict[str, str]) -> ApacheKafkaProcess:
    """Its controller and its start use listeners without a login."""
    version = os.environ.get("TIDELOG_TEST_APACHE_KAFKA", "")
    if not version:
        pytest.skip("TIDELOG_TEST_APACHE_KAFKA names the version of Kafka to run, such as 4.3.1")
    process = ApacheKafkaProcess(version, directory)
    controller = process._kafka._controller_port
    listeners = f"{settings['listeners']},PLAINTEXT://{process.bootstrap}"
    process._kafka._settings |= settings | {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
    }
    return process


@pytest.fixture(scope="module", params=["Tidelog", "Apache Kafka"])
def options(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of a query; the password is in a file, which executors can read, too."""
    directory = tmp_path_factory.mktemp("secured")
    certificate, port = Authority(directory).sign("broker"), free_port()
    secrets = directory / "secrets.properties"
    secrets.write_text(f"password={PASSWORD}\n")
    settings = {
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS.format(PASSWORD),
        "ssl.keystore.location": str(certificate.location),
        "ssl.truststore.location": str(certificate.authority),
    }
    module = f"{MODULES}.plain.PlainLoginModule"
    placeholder = f"${{file:{secrets}:password}}"
    if request.param == "Tidelog":
        broker: BrokerProcess = TidelogProcess(directory / "broker", settings, port)
    else:
        broker = apache_kafka(directory / "broker", settings)
    with running(broker):
        yield {
            "kafka.bootstrap.servers": f"127.0.0.1:{port}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{module} required username="spark" password="{placeholder}";',
            "kafka.ssl.truststore.location": str(certificate.authority),
        }


def test_a_stream_is_written_and_read_without_a_trace_of_its_secrets(
    spark: "SparkSession", options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spark.createDataFrame([(str(number).encode(),) for number in range(100)], "value binary")
    rows.write.format("tidelog").mode("append").options(**options, topic="secured").save()
    stream = spark.readStream.format("tidelog").options(**options, subscribe="secured", startingOffsets="earliest")
    written = (
        stream.load()
        .select("value")
        .writeStream.format("tidelog")
        .options(**options, topic="copied", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    written.awaitTermination(300)
    copied = spark.read.format("tidelog").options(**options, subscribe="copied").load()
    assert copied.count() == 100
    copied.explain("extended")
    plans = capsys.readouterr().out + str(written.lastProgress) + repr(copied)
    assert PASSWORD not in plans
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path


def test_a_secret_in_an_option_is_refused(spark: "SparkSession", options: dict[str, str]) -> None:
    given = {**options, "kafka.sasl.jaas.config": JAAS.format(PASSWORD)}
    with pytest.raises(Exception, match="has a secret in it") as refused:
        spark.read.format("tidelog").options(**given, subscribe="secured").load().count()
    assert PASSWORD not in str(refused.value)
