"""Gets Spark's own Kafka connector from Maven Central: the peer that format("tidelog") is compared with."""

from pathlib import Path

from tools.apache_kafka import REPOSITORY, fetch_artefacts, require_java

VERSION = "4.2.0"
CACHE = REPOSITORY / ".cache" / "spark-kafka-connector"
# The newest of each that works with the Spark we use; Spark brings everything else that they need.
ARTEFACTS = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
]


def jars() -> list[Path]:
    """The connector's jars, fetched on first use. NotAvailable says what to install."""
    directory = CACHE / VERSION / "libs"
    if not directory.is_dir():
        require_java()
        fetch_artefacts(f"Spark's Kafka connector {VERSION}", ARTEFACTS, directory, with_dependencies=False)
    return sorted(directory.glob("*.jar"))


def session_settings() -> dict[str, str]:
    """What a Spark session needs so that format("kafka") works in it."""
    return {"spark.driver.extraClassPath": ":".join(map(str, jars())), "spark.jars": ",".join(map(str, jars()))}


if __name__ == "__main__":
    print(*jars(), sep="\n")
