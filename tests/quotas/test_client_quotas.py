"""Quotas of clients: which one applies, who shares it, and how long a client pauses."""

import pytest

from tidelog.quotas.client_quotas import ClientQuotas, Windows
from tidelog.quotas.connection_rates import ConnectionRates
from tidelog.quotas.entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    MAX_NAME_LENGTH,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
    QuotaMistake,
    QuotaTable,
    check_quota,
    entity_of,
)

WINDOWS = Windows(11, 1)

LEVELS = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_the_most_specific_of_eight_levels_applies(level: int) -> None:
    table = QuotaTable()
    for number, entity in enumerate(LEVELS[level:], level):
        table.replace(entity, {PRODUCER_BYTE_RATE: number + 1})
    found = table.applied(PRODUCER_BYTE_RATE, "alice", "app")
    assert found is not None
    assert found.bound == level + 1
    assert found.user == ("alice" if LEVELS[level].user else "")
    assert found.client_id == ("app" if LEVELS[level].client_id else "")


def test_each_key_is_looked_up_for_itself() -> None:
    table = QuotaTable()
    table.replace(QuotaEntity("alice"), {PRODUCER_BYTE_RATE: 1})
    table.replace(QuotaEntity(DEFAULT), {CONSUMER_BYTE_RATE: 2})
    found = table.applied(CONSUMER_BYTE_RATE, "alice", "app")
    assert found is not None
    assert found.bound == 2
    assert table.applied(REQUEST_PERCENTAGE, "alice", "app") is None


def quotas(key: str, bound: float, entity: QuotaEntity = LEVELS[2]) -> ClientQuotas:
    found = ClientQuotas(WINDOWS, WINDOWS)
    found.table.replace(entity, {key: bound})
    return found


def test_a_producer_pauses_and_all_clients_of_its_user_with_it() -> None:
    found = quotas(PRODUCER_BYTE_RATE, 100)
    assert found.produced("alice", "app", 1000, now_s=0) == 0
    assert found.produced("alice", "other", 500, now_s=0) == 5
    assert found.produced("bob", "app", 10_000, now_s=0) == 0


def test_a_default_quota_is_not_shared() -> None:
    found = quotas(PRODUCER_BYTE_RATE, 100, QuotaEntity(DEFAULT))
    assert found.produced("alice", "app", 1500, now_s=0) == 5
    assert found.produced("bob", "app", 1000, now_s=0) == 0


def test_very_long_client_ids_are_measured_but_not_remembered() -> None:
    found = quotas(PRODUCER_BYTE_RATE, 100, QuotaEntity(None, DEFAULT))
    for number in range(100):
        throttle_s = found.produced("alice", f"{'a' * 30_000}{number}", 100, now_s=0)
    assert throttle_s > 0
    ((_, client_id), _, _), *others = found.produce.items()
    assert len(client_id) == MAX_NAME_LENGTH
    assert others == []
    assert not found.table._applied


def test_a_quota_of_a_very_long_client_id_applies() -> None:
    found = quotas(PRODUCER_BYTE_RATE, 100, QuotaEntity(None, "a" * 300))
    assert found.produced("alice", "a" * 300, 1500, now_s=0) == 5
    assert found.produced("alice", "a" * 301, 1500, now_s=0) == 0


def test_a_fetch_is_limited_to_what_the_windows_hold() -> None:
    found = quotas(CONSUMER_BYTE_RATE, 100)
    assert found.fetched("alice", "app", 900, now_s=0) == 0
    assert found.fetched("alice", "app", 600, now_s=0) == 5
    assert found.max_fetch_bytes("alice", "app") == 1000
    assert found.max_fetch_bytes("bob", "app") is None


def test_work_for_a_client_is_a_percentage_and_pauses_are_short() -> None:
    found = quotas(REQUEST_PERCENTAGE, 10)
    assert found.worked("alice", "app", 0.5, now_s=0) == 0
    assert found.worked("alice", "app", 1.0, now_s=0) == 1


def test_mutations_are_refused_strictly_or_accepted_with_a_pause() -> None:
    found = quotas(CONTROLLER_MUTATION_RATE, 1)
    assert found.mutate("alice", "app", 13, now_s=0, is_strict=True) == (True, 0)
    assert found.mutate("alice", "app", 1, now_s=0, is_strict=True) == (False, 2)
    assert found.mutate("alice", "app", 1, now_s=0, is_strict=False) == (True, 3)
    assert found.mutate("alice", "app", 1, now_s=4, is_strict=True) == (True, 0)


def test_connections_of_an_address_and_of_a_broker() -> None:
    table = QuotaTable()
    rates = ConnectionRates(WINDOWS, table)
    table.replace(QuotaEntity(ip="10.0.0.1"), {CONNECTION_CREATION_RATE: 1})
    assert rates.is_active
    assert [rates.record_for_address("10.0.0.1", 0) for _ in range(10)] == [0] * 10
    assert rates.record_for_address("10.0.0.1", 0) > 0
    assert rates.record_for_address("10.0.0.2", 0) == 0
    rates.reconfigure(2, {"CLIENTS": 1})
    assert [rates.record_for_listener("CLIENTS", 0) for _ in range(10)] == [0] * 10
    assert rates.record_for_listener("CLIENTS", 0) == pytest.approx(1)
    assert rates.record_for_listener("BROKERS", 0) == 0


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"user": "alice"}, QuotaEntity("alice")),
        ({"user": None, "client-id": "app"}, QuotaEntity(DEFAULT, "app")),
        ({"ip": "::1"}, QuotaEntity(ip="::1")),
        ({"ip": None}, QuotaEntity(ip=DEFAULT)),
    ],
)
def test_entities_of_requests(parts: dict[str, str | None], expected: QuotaEntity) -> None:
    assert entity_of(parts) == expected
    assert expected.parts == parts


@pytest.mark.parametrize(
    "parts", [{}, {"user": ""}, {"planet": "x"}, {"ip": "10.0.0.1", "user": "a"}, {"ip": "not an address"}]
)
def test_entities_that_cannot_be(parts: dict[str, str | None]) -> None:
    with pytest.raises(QuotaMistake):
        entity_of(parts)


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (QuotaEntity("a"), "unknown", 1),
        (QuotaEntity("a"), CONNECTION_CREATION_RATE, 1),
        (QuotaEntity(ip="::1"), PRODUCER_BYTE_RATE, 1),
        (QuotaEntity("a"), PRODUCER_BYTE_RATE, 0),
        (QuotaEntity("a"), PRODUCER_BYTE_RATE, 1.5),
        (QuotaEntity("a"), PRODUCER_BYTE_RATE, float("nan")),
        (QuotaEntity(ip="::1"), CONNECTION_CREATION_RATE, 2.0**31),
    ],
)
def test_quotas_that_cannot_be(entity: QuotaEntity, key: str, value: float) -> None:
    with pytest.raises(QuotaMistake):
        check_quota(entity, key, value)
    check_quota(QuotaEntity("a"), REQUEST_PERCENTAGE, 12.5)
