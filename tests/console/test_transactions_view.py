"""Transactions on the page: open ones, those that hang, and their abort."""

import time
from collections.abc import Generator

import pytest
from confluent_kafka import KafkaException, Producer
from playwright.sync_api import Page, expect

from bench import wire
from tests.console.chromium import needs_chromium
from tests.console.running_console import RunningConsole, running_console
from tidelog.testing import Cluster

WAIT_S = 60
HOUR_MS = 3_600_000
MADE_UP_PRODUCER_ID = 4711


@pytest.fixture(scope="module")
def kafka() -> Generator[Cluster]:
    settings = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "num.partitions": 1,
        # As brokers before 3.6, which let a transaction begin that no coordinator knows.
        "transaction.partition.verification.enable": "false",
    }
    with Cluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def console(kafka: Cluster) -> Generator[RunningConsole]:
    with running_console(kafka.bootstrap_servers, "--manage") as running:
        yield running


def begin(kafka: Cluster, transactional_id: str, topic: str) -> Producer:
    """A producer whose transaction is open, with one record."""
    options = {"transactional.id": transactional_id, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers} | options)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"paid")
    producer.flush(WAIT_S)
    return producer


def listed(console: RunningConsole, transactional_id: str) -> dict[str, object]:
    found: list[dict[str, object]] = console.get("/api/transactions")
    return next(each for each in found if each["transactional_id"] == transactional_id)


@needs_chromium
def test_an_open_transaction_is_listed_and_aborted(console: RunningConsole, kafka: Cluster, page: Page) -> None:
    producer = begin(kafka, "payer", "payments")
    found = listed(console, "payer")
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("Ongoing", 600_000, ["payments-0"])
    page.goto(f"{console.origin}/#/transactions")
    row = page.locator("tr", has_text="payer")
    expect(row).to_contain_text("Ongoing")
    expect(row).to_contain_text("payments-0")
    row.get_by_role("button", name="Abort").click()
    expect(page.locator("dialog")).to_contain_text("The producer payer is fenced")
    page.locator("dialog").get_by_role("button", name="Abort").click()
    expect(row).not_to_contain_text("Ongoing")
    expect(row.get_by_role("button")).to_have_count(0)
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    states = [each["transaction"] for each in console.get("/api/topics/payments/messages?start=earliest")["records"]]
    assert states[0] == "aborted"


@needs_chromium
def test_one_that_is_open_for_longer_than_its_timeout_is_hanging(
    console: RunningConsole, kafka: Cluster, page: Page
) -> None:
    """Its coordinator is late: it ends such a one within seconds, if it can."""
    producer = begin(kafka, "sleeper", "naps")
    late = [listed(console, "sleeper")]
    page.route("**/api/transactions", lambda route: route.fulfill(json=late))
    page.goto(f"{console.origin}/#/transactions")
    expect(page.locator("tr", has_text="sleeper").locator(".pill")).to_have_text("Ongoing")
    late[0]["start_ms"] = int(str(late[0]["start_ms"])) - HOUR_MS
    page.reload()
    expect(page.locator("tr", has_text="sleeper").locator(".pill.bad")).to_have_text("hanging")
    producer.abort_transaction(WAIT_S)


@needs_chromium
def test_one_that_no_coordinator_knows_is_hanging_and_is_aborted(
    console: RunningConsole, kafka: Cluster, page: Page
) -> None:
    assert console.change("create-topic", {"topic": "stuck", "partitions": 1, "factor": 1})[0] == 200
    leave_hanging(kafka, "stuck")
    (found,) = hanging_ones(console)
    assert (found["partition"], found["producer_id"], found["start_offset"]) == (0, MADE_UP_PRODUCER_ID, 0)
    page.goto(f"{console.origin}/#/transactions")
    row = page.locator("tr", has_text="stuck-0")
    expect(row.locator(".pill.bad")).to_have_text("hanging")
    row.get_by_role("button", name="Abort").click()
    page.locator("dialog").get_by_role("button", name="Abort").click()
    expect(row).to_have_count(0)
    offsets = console.get("/api/topics/stuck")["offsets"]["0"]
    assert offsets["last_stable"] == offsets["high_watermark"] == 2


def hanging_ones(console: RunningConsole) -> list[dict[str, object]]:
    """As soon as there are some: while no page is open, the console looks for new topics every 5 seconds."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found: list[dict[str, object]] = console.get("/api/transactions/hanging")
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def leave_hanging(kafka: Cluster, topic: str) -> None:
    """A record of an hour ago, of a transaction that no coordinator has ever heard of."""
    batch = wire.record_batch([b"lost"], time.time_ns() // 1_000_000 - HOUR_MS)
    with wire.Connection(int(kafka.bootstrap_servers.rpartition(":")[2])) as connection:
        frame = wire.produce_frame(
            topic, {0: wire.transactional(batch, MADE_UP_PRODUCER_ID, 0, 0)}, transactional_id="?"
        )
        assert wire.produce_error(connection.ask(frame)) == wire.ERROR_NONE


def test_an_open_transaction_of_a_coordinator_is_not_aborted_as_a_hanging_one(
    console: RunningConsole, kafka: Cluster
) -> None:
    begin(kafka, "careful", "carefully")
    wanted = {"topic": "carefully", "partition": 0, "producer_id": listed(console, "careful")["producer_id"]}
    status, answer = console.change("abort-hanging", wanted)
    assert (status, "has no hanging transaction on carefully-0" in answer) == (400, True)
    assert listed(console, "careful")["state"] == "Ongoing"
