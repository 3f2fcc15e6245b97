"""The options of a query: what they mean, and the sentence that a wrong one gets."""

import logging
import pickle
from dataclasses import fields, replace

import pytest

from tidelog.client.consumer.consumer_settings import READ_COMMITTED
from tidelog.protocol.compression import Codec
from tidelog.spark.options.client_settings import ClientSettings
from tidelog.spark.options.delivery_guarantee import Guarantee
from tidelog.spark.options.kafka_settings import KAFKA_SETTINGS, REJECTED, WITHOUT_EFFECT
from tidelog.spark.options.option_table import BY_LOWER_NAME, OPTIONS, Query
from tidelog.spark.options.query import (
    OptionError,
    ReadOptions,
    WriteOptions,
    read_options,
    wants_headers,
    write_options,
)
from tidelog.spark.options.values import (
    Assign,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    Subscribe,
    SubscribePattern,
    TimestampStrategy,
)
from tidelog.spark.source.batch_planning import Limits
from tidelog.types import TopicPartition
from tools.spark_options_reference import REFERENCE, reference

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:29092"}
BASE = BOOTSTRAP | {"subscribe": "orders"}
A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(**options: str) -> ReadOptions:
    return read_options(BASE | _dotted(options), is_stream=False)


def stream(**options: str) -> ReadOptions:
    return read_options(BASE | _dotted(options), is_stream=True)


def write(**options: str) -> WriteOptions:
    return write_options(BOOTSTRAP | _dotted(options), is_stream=False)


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


def rejection(options: dict[str, str], *, is_stream: bool = False) -> str:
    with pytest.raises(OptionError) as raised:
        read_options(options, is_stream=is_stream)
    return str(raised.value)


def write_rejection(options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as raised:
        write_options(BOOTSTRAP | options, is_stream=True)
    return str(raised.value)


# -- what is read when nothing else is said


def test_a_batch_reads_from_the_beginning_to_the_end() -> None:
    assert batch() == ReadOptions("localhost:29092", Subscribe(("orders",)))
    assert (batch().starting, batch().ending) == (Edge.EARLIEST, Edge.LATEST)


def test_a_stream_reads_what_comes_from_now_on() -> None:
    assert stream().starting is Edge.LATEST


def test_defaults_are_those_of_spark() -> None:
    found = stream()
    assert found.fail_on_data_loss
    assert not found.include_headers
    assert found.limits == Limits(None, None, 900.0, None)
    assert found.timestamp_strategy is TimestampStrategy.ERROR
    assert found.client == ClientSettings()
    assert (found.driver_read_rows, found.client.fetch_max_bytes) == (20_000, 4 * 1024 * 1024)


def test_names_are_the_same_in_any_case() -> None:
    lower = {"kafka.bootstrap.servers": "localhost:29092", "subscribe": "orders", "failondataloss": "FALSE"}
    upper = {name.upper(): text for name, text in lower.items()}
    assert read_options(lower, is_stream=True) == read_options(upper, is_stream=True)
    assert not read_options(lower, is_stream=True).fail_on_data_loss


def test_options_travel_to_tasks() -> None:
    found = stream(startingOffsets='{"orders":{"0":5}}', kafka__compression__type="lz4")
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found.client) == hash(pickle.loads(pickle.dumps(found.client)))


# -- what is read


def test_topics_a_pattern_or_partitions_are_subscribed_to() -> None:
    assert batch(subscribe=" b, a ,b,").subscription == Subscribe(("b", "a"))
    pattern = read_options(BOOTSTRAP | {"subscribePattern": "orders-.*"}, is_stream=True)
    assert pattern.subscription == SubscribePattern("orders-.*")
    assigned = read_options(BOOTSTRAP | {"assign": '{"orders":[1,0,1]}'}, is_stream=True)
    assert assigned.subscription == Assign((A, B))


def test_exactly_one_kind_of_subscription_is_given() -> None:
    both = BASE | {"assign": '{"orders":[0]}'}
    assert rejection(both) == "Options 'subscribe' and 'assign' exclude each other: keep only one of them"
    assert rejection(BOOTSTRAP) == (
        "No topic to read: set one of the options 'subscribe', 'subscribePattern' and 'assign'"
    )


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("subscribe", " , ", "must have at least one topic"),
        ("subscribePattern", "a(", "is not a regular expression"),
        ("subscribePattern", " ", "must not be empty"),
        ("assign", "orders", "must look like"),
        ("assign", '{"orders":0}', "must look like"),
        ("assign", '{"orders":[-1]}', "must look like"),
        ("assign", '{"orders":[true]}', "must look like"),
        ("assign", "{}", "must have at least one partition"),
    ],
)
def test_a_subscription_that_means_nothing_is_refused(name: str, text: str, reason: str) -> None:
    assert rejection(BOOTSTRAP | {name: text}).startswith(f"Option '{name}' {reason}")


# -- from where to where


def test_places_are_edges_offsets_or_times() -> None:
    assert stream(startingOffsets=" Earliest ").starting is Edge.EARLIEST
    assert stream(startingOffsets='{"orders":{"0":5,"1":-1}}').starting == AtOffsets({A: 5, B: -1})
    assert batch(startingTimestamp="1000").starting == AtTime(1000)
    assert batch(endingOffsetsByTimestamp='{"orders":{"0":7}}').ending == AtTimes({A: 7})
    assert batch(endingOffsets='{"orders":{"0":-1}}').ending == AtOffsets({A: -1})


def test_times_win_over_offsets_and_the_one_for_all_over_those_by_partition() -> None:
    offsets, times, time = '{"orders":{"0":5}}', '{"orders":{"0":7}}', "1000"
    assert batch(startingOffsets=offsets, startingOffsetsByTimestamp=times).starting == AtTimes({A: 7})
    every = batch(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp=time)
    assert every.starting == AtTime(1000)
    ends = batch(endingOffsets=offsets, endingOffsetsByTimestamp=times, endingTimestamp=time)
    assert ends.ending == AtTime(1000)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("startingOffsets", "latest", "cannot be latest in a batch query"),
        ("startingOffsets", '{"orders":{"0":-1}}', "cannot be latest in a batch query: it is -1 for orders-0"),
        ("endingOffsets", "earliest", "cannot be earliest"),
        ("endingOffsets", '{"orders":{"0":-2}}', "cannot be earliest: it is -2 for orders-0"),
        ("startingOffsets", "first", "must be earliest, latest or JSON such as"),
        ("startingOffsets", '{"orders":{"0":-3}}', "has -3 for orders-0; use -1 for latest"),
        ("startingOffsets", '{"orders":{"a":1}}', "must be earliest, latest or JSON"),
        ("startingOffsets", '{"orders":{"0":1.5}}', "must be earliest, latest or JSON"),
        ("startingOffsets", '{"orders":{"0":1,"0":2}}', "must be earliest, latest or JSON"),
        ("startingTimestamp", "2026-01-01", "must be a time in milliseconds since 1970"),
        ("startingTimestamp", "-1", "must be a time in milliseconds since 1970"),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-2}}', "has -2 for orders-0"),
        ("startingOffsetsByTimestamp", "1000", "must be JSON such as"),
        ("startingOffsetsByTimestampStrategy", "earliest", "must be error or latest"),
    ],
)
def test_a_place_that_means_nothing_is_refused(name: str, text: str, reason: str) -> None:
    assert rejection(BASE | {name: text}).startswith(f"Option '{name}' {reason}")


def test_a_batch_does_not_end_before_it_starts() -> None:
    backwards = {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":4}}'}
    assert rejection(BASE | backwards) == (
        "Options 'startingOffsets' and 'endingOffsets' leave nothing to read of orders-0: 9 is after 4"
    )
    others = {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"1":40}}'}
    assert "must have the same partitions; only one has orders-0, orders-1" in rejection(BASE | others)
    times = {"startingOffsetsByTimestamp": '{"a":{"0":9}}', "endingOffsetsByTimestamp": '{"a":{"0":4}}'}
    assert "leave nothing to read of a-0" in rejection(BASE | times)
    assert batch(startingOffsets='{"orders":{"0":9}}', endingOffsets='{"orders":{"0":-1}}')


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"orders":{"0":7}}')
    expected = f"Option '{name}' is for batch queries; a stream has no end"
    assert rejection(BASE | {name: text}, is_stream=True) == expected


# -- limits and parts


def test_limits_of_a_micro_batch() -> None:
    found = stream(
        maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="30s", maxBytesPerTrigger="1000000"
    )
    assert found.limits == Limits(100, 10, 30.0, 1_000_000)


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("500ms", 0.5), ("250", 0.25), ("2 min", 120), ("1H", 3600), ("1d", 86400)]
)
def test_times_are_written_as_in_spark(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).limits.max_trigger_delay_s == seconds


def test_the_least_is_not_above_the_most() -> None:
    both = {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}
    assert "'minOffsetsPerTrigger' (11) must not exceed" in rejection(BASE | both, is_stream=True)


def test_a_batch_ignores_limits_of_micro_batches_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert batch(maxOffsetsPerTrigger="5", maxTriggerDelay="1s").limits == Limits()
    (record,) = caplog.records
    assert record.getMessage() == "options have no effect names=maxOffsetsPerTrigger,maxTriggerDelay query=batch"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("maxOffsetsPerTrigger", "0", "must be a whole number, at least 1, not '0'"),
        ("maxOffsetsPerTrigger", "many", "must be a whole number, at least 1"),
        ("minPartitions", "-2", "must be a whole number, from 1 to 2147483647"),
        ("maxRecordsPerPartition", "0", "must be a whole number"),
        ("driverReadRows", "-1", "must be a whole number, at least 0"),
        ("maxTriggerDelay", "soon", "must be a time such as 500ms, 30s, 15m or 1h"),
        ("failOnDataLoss", "no", "must be true or false"),
        ("includeHeaders", "1", "must be true or false"),
        ("partition.metadata.cache.ttl.ms", "x", "must be a whole number"),
    ],
)
def test_a_value_that_means_nothing_is_refused(name: str, text: str, reason: str) -> None:
    assert rejection(BASE | {name: text}, is_stream=True).startswith(f"Option '{name}' {reason}")


def test_parts_headers_and_our_own_options() -> None:
    found = stream(
        minPartitions="8", maxRecordsPerPartition="1000", includeHeaders="true", driverReadRows="0", fetchBytes="1024"
    )
    assert (found.min_partitions, found.max_records_per_partition, found.include_headers) == (8, 1000, True)
    assert (found.driver_read_rows, found.client.fetch_max_bytes) == (0, 1024)


def test_whether_rows_have_headers_is_known_without_the_rest() -> None:
    assert wants_headers({"includeheaders": "true"})
    assert not wants_headers({})
    with pytest.raises(OptionError, match="'includeHeaders' must be true or false"):
        wants_headers({"INCLUDEHEADERS": "yes"})


# -- unknown options


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("startingOffset", "Option 'startingOffset' is not known; did you mean 'startingOffsets'?"),
        ("startingoffset", "Option 'startingoffset' is not known; did you mean 'startingOffsets'?"),
        ("failOnDataLost", "Option 'failOnDataLost' is not known; did you mean 'failOnDataLoss'?"),
        (
            "kafka.bootstrap.server",
            "Option 'kafka.bootstrap.server' is not known; did you mean 'kafka.bootstrap.servers'?",
        ),
        ("bootstrap.servers", "Option 'bootstrap.servers' is not known; did you mean 'kafka.bootstrap.servers'?"),
        ("kafka.isolation.levle", "Option 'kafka.isolation.levle' is not known; did you mean 'kafka.isolation.level'?"),
        ("colour", "Option 'colour' is not known"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name: str, sentence: str) -> None:
    assert rejection(BASE | {name: "1"}) == sentence


def test_a_misspelt_name_is_reported_before_what_is_missing() -> None:
    misspelt = {"kafka.bootstrap.server": "localhost:29092", "subscribe": "orders"}
    assert rejection(misspelt) == (
        "Option 'kafka.bootstrap.server' is not known; did you mean 'kafka.bootstrap.servers'?"
    )


def test_the_nearest_name_is_of_the_same_kind_of_query() -> None:
    assert write_rejection({"topics": "t"}) == "Option 'topics' is not known; did you mean 'topic'?"


def test_options_of_the_other_direction_are_refused() -> None:
    assert rejection(BASE | {"topic": "t"}) == "Option 'topic' is for writing; use 'subscribe' to select what to read"
    expected = "Option 'subscribe' is for reading and cannot be used for writing"
    assert write_rejection({"subscribe": "t"}) == expected


@pytest.mark.parametrize(
    "name", ["path", "paths", "checkpointLocation", "queryName", "__partition_columns", "asyncProgressTrackingEnabled"]
)
def test_what_spark_adds_passes(name: str) -> None:
    assert read_options(BASE | {name: "x"}, is_stream=True) == stream()
    assert replace(write_options(BOOTSTRAP | {name: "x"}, is_stream=False), checkpoint=None) == write()


def test_options_of_spark_that_mean_nothing_here_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    found = stream(
        fetchOffset__numRetries="5", fetchOffset__retryIntervalMs="10", groupIdPrefix="x", subscribe="orders"
    )
    assert found == stream()
    assert "fetchOffset.numRetries,fetchOffset.retryIntervalMs,groupIdPrefix" in caplog.text


# -- settings of kafka's clients


def test_brokers_must_be_given() -> None:
    assert rejection({"subscribe": "orders"}).startswith(
        "Option 'kafka.bootstrap.servers' is missing: set it to the brokers, as HOST:PORT,HOST:PORT (no cluster is"
    )
    assert "'kafka.bootstrap.servers' must be a list of brokers: expected HOST:PORT" in rejection(
        BASE | {"kafka.bootstrap.servers": "localhost"}
    )


def test_settings_for_reading() -> None:
    client = stream(
        kafka__client__id="me",
        kafka__client__rack="b",
        kafka__isolation__level="read_committed",
        kafka__request__timeout__ms="5000",
        kafka__default__api__timeout__ms="20000",
        kafka__max__partition__fetch__bytes="2048",
        kafka__group__id="g",
        kafkaConsumer__pollTimeoutMs="7000",
    ).client
    assert client == ClientSettings(
        client_id="me",
        client_rack="b",
        isolation_level=READ_COMMITTED,
        request_timeout_s=5.0,
        timeout_s=20.0,
        fetch_max_bytes=2048,
        group_id="g",
        read_timeout_s=7.0,
    )
    assert stream(kafka__max__partition__fetch__bytes="2048", fetchBytes="99").client.fetch_max_bytes == 99


def test_settings_for_writing() -> None:
    found = write(
        topic=" orders ",
        kafka__acks="1",
        kafka__compression__type="zstd",
        kafka__batch__size="1000",
        kafka__delivery__timeout__ms="9000",
        kafka__max__block__ms="3000",
    )
    client = ClientSettings(acks=1, compression=Codec.ZSTD, batch_bytes=1000, delivery_timeout_s=9.0, timeout_s=3.0)
    assert found == WriteOptions("localhost:29092", "orders", client=client)
    assert write(kafka__acks="all", kafka__compression__type="none") == write()


def test_rows_are_written_exactly_once_unless_that_is_too_much() -> None:
    assert write_options(BOOTSTRAP, is_stream=True).guarantee is Guarantee.EXACTLY_ONCE
    assert write_options(BOOTSTRAP, is_stream=False).guarantee is Guarantee.AUTO
    assert write(delivery="At-Least-Once").guarantee is Guarantee.AT_LEAST_ONCE
    assert write(kafka__acks="1").guarantee is Guarantee.AT_LEAST_ONCE
    assert write(delivery="auto", kafka__acks="1").guarantee is Guarantee.AT_LEAST_ONCE
    assert write(delivery="exactly-once").guarantee is Guarantee.EXACTLY_ONCE


def test_what_transactions_are_named_after() -> None:
    found = write(checkpointLocation="/tmp/it", kafka__transactional__id="copies")
    assert (found.checkpoint, found.transactional_id) == ("/tmp/it", "copies")
    assert write(kafka__transaction__timeout__ms="5000").client.transaction_timeout_ms == 5000


@pytest.mark.parametrize(
    ("options", "is_stream", "reason"),
    [
        ({"delivery": "exactly-once", "kafka.acks": "1"}, True, "'delivery' cannot be exactly-once unless"),
        ({"batchId": "3", "kafka.transactional.id": "x"}, True, "'batchId' is for batch queries"),
        ({"batchId": "3"}, False, "'batchId' needs 'kafka.transactional.id'"),
    ],
)
def test_options_of_exactly_once_that_contradict_each_other(
    options: dict[str, str], is_stream: bool, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        write_options(BOOTSTRAP | options, is_stream=is_stream)


def test_settings_of_the_other_direction_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    assert stream(kafka__acks="0") == stream()
    assert "names=kafka.acks query=stream" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("kafka.acks", "2", "must be one of all, -1, 1, 0, not '2'"),
        ("kafka.compression.type", "zip", "must be one of none, gzip, snappy, lz4, zstd, not 'zip'"),
        ("kafka.batch.size", "0", "must be a whole number"),
        ("kafka.delivery.timeout.ms", "1m", "must be a whole number"),
        ("kafka.key.serializer", "x", "is not supported: keys and values are bytes"),
        ("kafka.transactional.id", "a#b", "must not contain '#'"),
        ("kafka.transaction.timeout.ms", "0", "must be a whole number"),
        ("delivery", "at-most-once", "must be one of exactly-once, at-least-once, auto, not 'at-most-once'"),
        ("batchId", "-1", "must be a whole number"),
        ("topic", "  ", "must not be empty"),
    ],
)
def test_a_setting_that_cannot_be_used_for_writing_is_refused(name: str, text: str, reason: str) -> None:
    assert write_rejection({name: text}).startswith(f"Option '{name}' {reason}")


@pytest.mark.parametrize("name", sorted(REJECTED))
def test_settings_that_would_break_a_query_are_refused(name: str) -> None:
    assert rejection(BASE | {f"kafka.{name}": "x"}) == f"Option 'kafka.{name}' is not supported: {REJECTED[name]}"


JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="{}";'


def test_secured_connections_keep_placeholders_of_secrets() -> None:
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS.format("${env:PASSWORD}"),
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.keystore.password": "${file:/secrets:store}",
    }
    options = read_options(BASE | given, is_stream=True)
    assert dict(options.client.security.settings) == {name.removeprefix("kafka."): text for name, text in given.items()}
    assert "alice" not in repr(options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.jaas.config", JAAS.format("hunter2")),
        ("sasl.jaas.config", "hunter2"),
        ("sasl.password", "hunter2"),
        ("ssl.keystore.password", "hunter2"),
        ("ssl.keystore.key", "hunter2"),
        ("sasl.oauthbearer.client.credentials.client.secret", "hunter2"),
    ],
)
def test_secrets_in_options_are_refused_without_showing_them(name: str, text: str) -> None:
    for sentence in (rejection(BASE | {f"kafka.{name}": text}), write_rejection({f"kafka.{name}": text})):
        assert sentence.startswith(f"Option 'kafka.{name}' has a secret in it")
        assert "hunter2" not in sentence


def test_unknown_security_settings_are_refused() -> None:
    assert "did you mean sasl.mechanism?" in rejection(BASE | {"kafka.sasl.mechanissm": "PLAIN"})
    assert "must be one of PLAINTEXT, SSL" in rejection(BASE | {"kafka.security.protocol": "TLS"})


def test_a_plain_connection_may_be_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    assert stream(kafka__security__protocol="plaintext").bootstrap == stream().bootstrap
    assert not caplog.records


def test_settings_without_effect_are_named_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert stream(kafka__session__timeout__ms="5", kafka__max__poll__records="7") == stream()
    (record,) = caplog.records
    assert "names=kafka.session.timeout.ms,kafka.max.poll.records" in record.getMessage()


# -- the tables


def test_every_name_is_in_one_table() -> None:
    assert len(BY_LOWER_NAME) == len(OPTIONS)
    names = [setting.name for setting in KAFKA_SETTINGS]
    assert len(set(names)) == len(names)
    assert not set(names) & WITHOUT_EFFECT
    assert not set(REJECTED) & (WITHOUT_EFFECT | set(names))


def test_settings_fill_fields_that_exist() -> None:
    known = {field.name for field in fields(ClientSettings)}
    assert {name for setting in KAFKA_SETTINGS for name in setting.fields} <= known


def test_defaults_in_the_table_are_the_defaults() -> None:
    assert BY_LOWER_NAME["driverreadrows"].default == f"`{stream().driver_read_rows}`"
    assert BY_LOWER_NAME["fetchbytes"].default == f"`{stream().client.fetch_max_bytes}`"
    by_name = {setting.name: setting.default for setting in KAFKA_SETTINGS}
    assert by_name["batch.size"] == f"`{ClientSettings().batch_bytes}`"
    assert by_name["default.api.timeout.ms"] == f"`{ClientSettings().timeout_s * 1000:.0f}`"


def test_the_reference_page_is_fresh() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run tools/spark_options_reference.py"


def test_every_option_is_described_with_a_sentence() -> None:
    assert all(option.documentation.endswith(".") for option in OPTIONS)
    assert all(setting.documentation.endswith(".") for setting in KAFKA_SETTINGS)
    assert any(Query.WRITE in option.queries for option in OPTIONS)
