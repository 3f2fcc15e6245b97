"""Changes of broker settings while it runs, bounded by what it runs with, as Apache Kafka 4.3.1 bounds them."""

from dataclasses import replace

import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.dynamic_changes import check_dynamic_change
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.runtime.tls_context import check_certificates

RUNNING = BrokerSettings(num_replica_fetchers=4)


@pytest.mark.parametrize(
    "allowed",
    [
        {"max.connections": "1"},
        {"max.connections.per.ip": "1"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
        {"num.replica.fetchers": "2"},
        {"num.replica.fetchers": "8"},
        {"num.io.threads": "4"},
        {"num.network.threads": "6"},
        {"log.cleaner.threads": "2"},
        {"leader.replication.throttled.rate": "0"},
        {"min.insync.replicas": "2"},
        {"log.cleaner.dedupe.buffer.size": "1048577"},
        {"log.retention.ms": "-1"},
        {"log.roll.ms": "1"},
        {"log.local.retention.ms": "5"},
        {"log.local.retention.ms": "-1", "log.retention.ms": "-1"},
        {"group.consumer.assignment.interval.ms": "15000"},
        {},
    ],
)
def test_a_change_within_bounds_passes(allowed: dict[str, str]) -> None:
    check_dynamic_change(RUNNING, allowed, for_one_broker=False)


@pytest.mark.parametrize(
    ("rejected", "message"),
    [
        ({"max.connections": "0"}, "Invalid max.connections 0"),
        ({"max.connections.per.ip": "0"}, "can be set to zero only if max.connections.per.ip.overrides is set"),
        ({"num.replica.fetchers": "1"}, "value should be at least half the current value 4"),
        ({"num.replica.fetchers": "9"}, "value should not be greater than double the current value 4"),
        ({"num.replica.fetchers": "100000"}, "value should not be greater than double the current value 4"),
        ({"num.io.threads": "3"}, "num.io.threads=3, value should be at least half the current value 8"),
        ({"num.io.threads": "17"}, "num.io.threads=17, value should not be greater than double the current value 8"),
        ({"num.network.threads": "7"}, "value should not be greater than double the current value 3"),
        ({"background.threads": "21"}, "value should not be greater than double the current value 10"),
        ({"num.recovery.threads.per.data.dir": "5"}, "value should not be greater than double the current value 2"),
        ({"remote.log.reader.threads": "21"}, "Dynamic remote log manager config update validation failed"),
        ({"log.cleaner.threads": "0"}, "Log cleaner threads should be at least 1"),
        (
            {"log.cleaner.threads": "3"},
            "Log cleaner threads cannot be increased to more than double the current value 1",
        ),
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, "must be more than 1048576"),
        ({"log.cleaner.dedupe.buffer.size": "-1"}, "must be more than 1048576"),
        ({"log.cleaner.io.max.bytes.per.second": "0"}, "must be more than 0"),
        ({"log.retention.ms": "0"}, "must be unlimited"),
        ({"log.local.retention.ms": "-1"}, "log.retention.ms is 604800000: it must not be more"),
        ({"log.local.retention.ms": "604800001"}, "log.retention.ms is 604800000: it must not be more"),
        ({"group.share.assignment.interval.ms": "15001"}, "must be less than or equal to 15000"),
        ({"log.roll.ms": "0"}, "must be at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "must be at least 0"),
    ],
)
def test_a_change_that_would_lock_clients_out_or_stop_the_broker_is_refused(
    rejected: dict[str, str], message: str
) -> None:
    for for_one_broker in (True, False):
        with pytest.raises(InvalidRequest, match=message):
            check_dynamic_change(RUNNING, rejected, for_one_broker=for_one_broker)


def test_min_isr_is_the_same_for_all_brokers() -> None:
    with pytest.raises(InvalidConfig, match="Broker-level"):
        check_dynamic_change(RUNNING, {"min.insync.replicas": "2"}, for_one_broker=True)


def test_what_was_wrong_before_does_not_stop_a_change_of_something_else() -> None:
    running = BrokerSettings(max_connections=0, log_roll_ms=0)
    check_dynamic_change(running, {"message.max.bytes": "5000"}, for_one_broker=False)


def test_the_rate_of_connections_of_one_listener_needs_no_certificate() -> None:
    changed = {"listener.name.plaintext.max.connection.creation.rate": "5"}
    check_certificates(BrokerSettings(), changed)
    settings = replace(BrokerSettings(), listener_overrides=changed)
    assert settings.for_listener("PLAINTEXT").max_connection_creation_rate == 5
