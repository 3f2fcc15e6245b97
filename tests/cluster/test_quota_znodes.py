"""Paths of quotas in the store, with names escaped as Kafka's Sanitizer does."""

import pytest

from tidelog.cluster.quota_znodes import entity_at, entity_path, quotas_of
from tidelog.quotas.entities import CLIENT_KEYS, DEFAULT, QuotaEntity


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (QuotaEntity("alice"), "users/alice"),
        (QuotaEntity(DEFAULT, "app/1"), "users/<default>/clients/app%2F1"),
        (QuotaEntity("CN=a b,O=~*"), "users/CN%3Da%20b%2CO%3D%7E%2A"),
        (QuotaEntity(None, DEFAULT), "clients/<default>"),
        (QuotaEntity(ip="::1"), "ips/::1"),
        (QuotaEntity(".."), "users/%2E%2E"),
    ],
)
def test_paths_lead_to_entities_and_back(entity: QuotaEntity, path: str) -> None:
    assert entity_path(entity) == path
    assert entity_at(path) == entity


@pytest.mark.parametrize("path", ["topics/t", "users", "users/%3Cdefault%3E", "users/a/groups/g"])
def test_other_paths_have_no_quotas(path: str) -> None:
    assert entity_at(path) is None


def test_credentials_and_nonsense_are_no_quotas() -> None:
    configs = {"SCRAM-SHA-256": "salt=...", "producer_byte_rate": "1024", "consumer_byte_rate": "x"}
    assert quotas_of(configs, CLIENT_KEYS) == {"producer_byte_rate": 1024.0}
