"""The quota core: a rate over windows, its bound, and the lists of replicas that it applies to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.broker import BrokerSettings
from tidelog.config.resolution import topic_settings
from tidelog.config.setting import BadValue, settings_of
from tidelog.config.topic import TopicSettings
from tidelog.replication.quota import ReplicationQuota, ReplicationQuotas, is_listed, throttled_roles
from tidelog.types import TopicPartition


def quota(rate: int = 100, windows: int = 11) -> ReplicationQuota:
    return ReplicationQuota(windows, 1, rate)


def test_a_quota_without_bound_is_never_exceeded() -> None:
    unlimited = ReplicationQuota(11, 1)
    unlimited.record(10**15, 0.0)
    assert not unlimited.is_limited
    assert not unlimited.is_exceeded(0.0)


def test_the_first_window_counts_as_whole() -> None:
    found = quota()
    found.record(100, 5.0)
    assert (found.byte_rate(5.0), found.is_exceeded(5.0)) == (100, False)
    found.record(1, 5.1)
    assert found.is_exceeded(5.1)


def test_the_rate_is_taken_since_the_oldest_window_began() -> None:
    found = quota()
    for second in range(5):
        found.record(150, float(second))
    assert found.byte_rate(5.0) == 150
    assert found.byte_rate(7.5) == 100
    assert not found.is_exceeded(7.5)


def test_windows_that_are_too_old_do_not_count() -> None:
    found = quota(windows=3)
    found.record(10_000, 0.0)
    assert found.is_exceeded(2.9)
    assert not found.is_exceeded(3.0)
    found.record(50, 3.5)
    assert found.byte_rate(3.5) == 50
    assert found.total_bytes == 10_050


def test_a_wait_ends_when_the_quota_is_no_longer_exceeded() -> None:
    found = quota()
    found.record(400, 0.0)
    assert found.wait_s(1.0) == 3.0
    assert not found.is_exceeded(4.0)
    assert found.wait_s(4.0) == 0.0


def test_a_wait_ends_at_the_latest_when_the_oldest_window_expires() -> None:
    for rate in (0, 1):
        found = quota(rate)
        found.record(400, 0.0)
        assert found.wait_s(1.0) == 10.0
        assert not found.is_exceeded(11.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 1000)), min_size=1), st.integers(1, 500))
def test_after_the_wait_the_quota_is_not_exceeded(steps: list[tuple[float, int]], rate: int) -> None:
    found, now_s = quota(rate), 0.0
    for pause_s, size in steps:
        now_s += pause_s
        found.record(size, now_s)
    for _ in range(20):  # a window that expires can leave others that exceed the quota
        now_s += found.wait_s(now_s) + 1e-6
    assert not found.is_exceeded(now_s)


@given(st.integers(1, 400))
def test_a_sender_that_stops_while_the_quota_is_exceeded_keeps_the_rate(chunk: int) -> None:
    found, now_s, sent = quota(1000), 0.0, 0
    while now_s < 100.0:
        if not found.is_exceeded(now_s):
            found.record(chunk, now_s)
            sent += chunk
        now_s += 0.05
    assert sent <= 1000 * 100 * 1.15 + chunk


def test_new_rates_apply_at_once_and_removed_ones_are_no_limit() -> None:
    quotas = ReplicationQuotas(BrokerSettings())
    quotas.leader.record(1000, 0.0)
    assert not any(each.is_exceeded(0.0) for _, each in quotas.by_name())
    quotas.reconfigure(BrokerSettings(leader_replication_throttled_rate=100))
    assert [name for name, each in quotas.by_name() if each.is_exceeded(0.0)] == ["leader"]
    quotas.reconfigure(BrokerSettings(replica_alter_log_dirs_io_max_bytes_per_second=5))
    assert [name for name, each in quotas.by_name() if each.is_limited] == ["alter_log_dirs"]


@pytest.mark.parametrize(
    ("text", "is_throttled"),
    [("", False), ("*", True), ("3:1", True), ("3:2", False), ("2:1,3:1", True), (" 03:01 ,", True), ("2:1", False)],
)
def test_a_list_names_replicas_by_partition_and_broker(text: str, is_throttled: bool) -> None:
    name = "leader.replication.throttled.replicas"
    assert is_listed(settings_of(TopicSettings)[name].parse(text), 3, 1) == is_throttled
    settings = topic_settings(TopicSettings(), {name: text})
    assert throttled_roles(settings, TopicPartition("orders", 3), 1) == (is_throttled, False)


@pytest.mark.parametrize("text", ["1", "1:", ":1", "a:b", "*,1:2", "1:2:3", "-1:2"])
def test_a_malformed_list_is_rejected_in_kafkas_words(text: str) -> None:
    setting = settings_of(TopicSettings)["follower.replication.throttled.replicas"]
    with pytest.raises(BadValue, match=r"must be the literal '\*' or a list of replicas in the following format"):
        setting.parse(text)
