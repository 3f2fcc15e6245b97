import pytest

from tidelog.config.broker import BrokerSettings
from tidelog.config.loading import load_broker_settings
from tidelog.config.resolution import (
    ConfigSource,
    DescribedSetting,
    DynamicBrokerConfigs,
    Synonym,
    describe_broker,
    describe_cluster_defaults,
    describe_topic,
    effective_broker_settings,
    topic_defaults,
    topic_settings,
    validate_dynamic_broker_configs,
    validated_topic_settings,
)
from tidelog.config.setting import ConfigType
from tidelog.config.topic import TopicSettings
from tidelog.errors import InvalidConfig, InvalidRequest


def described(found: list[DescribedSetting], name: str) -> DescribedSetting:
    return next(entry for entry in found if entry.name == name)


def test_the_defaults_of_broker_and_topic_agree() -> None:
    assert topic_defaults(BrokerSettings()) == TopicSettings()


@pytest.mark.parametrize(
    ("overrides", "retention_ms"),
    [
        ([], 168 * 3_600_000),
        (["log.retention.hours=2"], 7_200_000),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
    ],
)
def test_milliseconds_win_over_minutes_over_hours(overrides: list[str], retention_ms: int) -> None:
    assert topic_defaults(load_broker_settings(None, overrides)).retention_ms == retention_ms


def test_broker_settings_under_other_names_give_topics_their_defaults() -> None:
    broker = BrokerSettings(
        message_max_bytes=5, log_index_size_max_bytes=6, log_segment_delete_delay_ms=7, log_roll_hours=1
    )
    settings = topic_defaults(broker)
    assert (settings.max_message_bytes, settings.segment_index_bytes, settings.file_delete_delay_ms) == (5, 6, 7)
    assert settings.segment_ms == 3_600_000


def test_what_a_topic_stores_wins_and_what_cannot_be_read_is_passed_over() -> None:
    stored = {"retention.ms": "5", "message.format.version": "2.0", "segment.bytes": "much"}
    assert topic_settings(TopicSettings(), stored) == TopicSettings(retention_ms=5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"preallocate": "true"}, "Topic config preallocate is a Kafka setting that is not supported"),
        ({"segment.bytes": "5"}, "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (
            {"max.message.bytes": "99999999999"},
            "Invalid value 99999999999 for configuration max.message.bytes: Not a number of type INT",
        ),
        (
            {"cleanup.policy": "foo"},
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"compression.gzip.level": "0"},
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            {"compression.lz4.level": "99"},
            "Invalid value 99 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        (
            {"min.cleanable.dirty.ratio": "x"},
            "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            {"unclean.leader.election.enable": "maybe"},
            "Invalid value maybe for configuration unclean.leader.election.enable:"
            " Expected value to be either true or false",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
    ],
)
def test_a_topic_setting_that_is_not_allowed_is_refused_in_kafkas_words(
    overrides: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidConfig) as raised:
        validated_topic_settings(TopicSettings(), overrides)
    assert str(raised.value) == message


def test_values_are_trimmed_and_lists_split() -> None:
    settings = validated_topic_settings(
        TopicSettings(), {"cleanup.policy": " compact , delete,compact ", "flush.ms": " 7 "}
    )
    assert settings.cleanup_policy == ("compact", "delete")
    assert settings.flush_ms == 7
    assert settings.is_compacted
    assert settings.is_deleted


def test_a_topic_setting_is_described_with_every_place_that_sets_it() -> None:
    static = load_broker_settings(None, ["log.segment.bytes=2000000"])
    dynamic = DynamicBrokerConfigs({"log.segment.bytes": "3000000"}, {"log.segment.bytes": "4000000"})
    found = described(describe_topic(static, dynamic, {"segment.bytes": "5000000"}), "segment.bytes")
    assert found.value == "5000000"
    assert found.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found.type is ConfigType.INT
    assert not found.is_read_only
    assert found.synonyms == (
        Synonym("segment.bytes", "5000000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        Synonym("log.segment.bytes", "3000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "4000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        Synonym("log.segment.bytes", "2000000", ConfigSource.STATIC_BROKER_CONFIG),
        Synonym("log.segment.bytes", "1073741824", ConfigSource.DEFAULT_CONFIG),
    )


def test_without_an_override_a_topic_takes_the_value_and_the_source_of_the_broker() -> None:
    dynamic = DynamicBrokerConfigs(cluster_wide={"message.max.bytes": "77"})
    found = described(describe_topic(BrokerSettings(), dynamic, {}), "max.message.bytes")
    assert (found.value, found.source) == ("77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)


def test_hours_are_no_synonym_of_retention_in_milliseconds_unless_those_are_set() -> None:
    found = described(describe_topic(BrokerSettings(log_retention_hours=1), DynamicBrokerConfigs(), {}), "retention.ms")
    assert (found.value, found.source, found.synonyms) == ("3600000", ConfigSource.DEFAULT_CONFIG, ())


def test_a_broker_setting_says_whether_it_can_change() -> None:
    found = describe_broker(BrokerSettings(broker_id=3), DynamicBrokerConfigs(per_broker={"log.retention.ms": "5"}))
    broker_id = described(found, "broker.id")
    assert (broker_id.value, broker_id.source, broker_id.is_read_only) == ("3", ConfigSource.STATIC_BROKER_CONFIG, True)
    retention = described(found, "log.retention.ms")
    assert (retention.value, retention.source) == ("5", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert not retention.is_read_only
    assert described(found, "log.cleaner.min.cleanable.ratio").value == "0.5"
    assert described(found, "log.dirs").value is None


def test_the_cluster_wide_settings_are_described_alone() -> None:
    found = describe_cluster_defaults(DynamicBrokerConfigs({"log.retention.ms": "1"}, {"log.retention.ms": "2"}))
    assert [(entry.name, entry.value, entry.source) for entry in found] == [
        ("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    ]


def test_a_broker_runs_with_its_own_dynamic_settings_over_those_of_the_cluster() -> None:
    dynamic = DynamicBrokerConfigs({"max.connections": "1"}, {"max.connections": "2", "message.max.bytes": "3"})
    settings = effective_broker_settings(BrokerSettings(message_max_bytes=9), dynamic)
    assert (settings.max_connections, settings.message_max_bytes) == (1, 3)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"log.dirs": "/x", "broker.id": "1"}, "Cannot update these configs dynamically: log.dirs, broker.id"),
        ({"queued.max.requests": "1"}, "Cannot update these configs dynamically: queued.max.requests"),
        (
            {"replication.quota.window.num": "5"},
            "Cannot update these configs dynamically: replication.quota.window.num",
        ),
        ({"cordoned.log.dirs": "1"}, "Not supported: cordoned.log.dirs"),
        ({"listener.name.plaintext.max.lag": "1"}, "Not supported: listener.name.plaintext.max.lag"),
        ({"nope": "1"}, "Unknown broker configs: nope"),
        (
            {"max.connections": "-1"},
            "Invalid value -1 for configuration max.connections: Value must be at least 0",
        ),
    ],
)
def test_a_dynamic_broker_setting_that_is_not_allowed_is_refused(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        validate_dynamic_broker_configs(overrides, for_one_broker=True)
    assert str(raised.value) == message


def test_large_doubles_are_written_as_java_writes_them() -> None:
    found = describe_broker(BrokerSettings(log_cleaner_min_cleanable_ratio=1e-7), DynamicBrokerConfigs())
    assert described(found, "log.cleaner.min.cleanable.ratio").value == "1.0E-7"
