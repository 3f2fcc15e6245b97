"""Brokers of `tidelog up`, killed and started from the page."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cli.process import tidelog
from tests.console.chromium import needs_chromium
from tests.console.running_console import RunningConsole, running_console

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    directory = tmp_path_factory.mktemp("managed") / "data"
    started = tidelog("up", "--detach", "--brokers", "2", "--port", "0", "--data", str(directory))
    assert started.returncode == 0, started.stderr
    yield directory
    assert tidelog("down", "--data", str(directory)).returncode == 0


@pytest.fixture(scope="module")
def console(data: Path) -> Generator[RunningConsole]:
    bootstrap = ",".join(f"127.0.0.1:{each['port']}" for each in brokers(data))
    with running_console(bootstrap, "--manage", "--data", str(data)) as running:
        assert running.change("create-topic", {"topic": "orders", "partitions": 4, "factor": 2})[0] == 200
        yield running


def brokers(data: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(tidelog("status", "--json", "--data", str(data)).stdout)["brokers"]
    return found


def pid_of(data: Path, broker: int) -> object:
    return next(each["pid"] for each in brokers(data) if each["id"] == broker)


def test_a_broker_is_killed_and_started_from_the_cluster(console: RunningConsole, data: Path, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster")
    before = pid_of(data, 2)
    assert before
    page.get_by_role("button", name="Kill broker 2").click()
    expect(page.locator("dialog")).to_contain_text("It is ended with SIGKILL")
    page.locator("dialog").get_by_role("button", name="Kill broker 2").click()
    expect(page.locator(".grid-broker.down")).to_have_count(1)
    expect(page.locator(".timeline")).to_contain_text("Broker 2 was killed from the console.")
    expect(page.locator('[data-partition^="orders-"] [data-broker="1"] .chip.leader')).to_have_count(4)
    assert pid_of(data, 2) is None
    page.get_by_role("button", name="Start broker 2").click()
    expect(page.locator(".grid-broker.down")).to_have_count(0)
    expect(page.locator("#status")).to_have_text("healthy")
    expect(page.locator(".timeline")).to_contain_text("Broker 2 was started from the console.")
    assert pid_of(data, 2) not in (None, before)


def test_the_list_of_brokers_has_both_too(console: RunningConsole, data: Path, page: Page) -> None:
    page.goto(f"{console.origin}/#/brokers")
    row = page.locator("tr", has=page.get_by_role("link", name="1", exact=True))
    row.get_by_role("button", name="Kill").click()
    page.locator("dialog").get_by_role("button", name="Kill", exact=True).click()
    expect(row).to_contain_text("down")
    row.get_by_role("button", name="Start").click()
    expect(row).to_contain_text("up")
    expect(page.locator("#status")).to_have_text("healthy")
