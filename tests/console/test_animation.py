"""Flashes on the page of the cluster: new leaders, replicas that fall out of sync or return, and moves."""

from collections.abc import Generator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.chromium import needs_chromium
from tests.console.large_cluster import LargeConsole, large_console

pytestmark = needs_chromium

TOPIC = "topic-000"


@pytest.fixture(scope="module")
def console() -> Generator[LargeConsole]:
    with large_console() as found:
        yield found


def chip(page: Page, partition: int, broker: int) -> Locator:
    return page.locator(f'[data-partition="{TOPIC}-{partition}"] [data-broker="{broker}"] .chip')


def flashing(page: Page, partition: int) -> Locator:
    return page.locator(f'[data-partition="{TOPIC}-{partition}"] .chip.changed')


def shown_after(console: LargeConsole, partition: int, **fields: Any) -> None:
    """The console looks at the cluster once, and pushes what it finds."""
    console.cluster.change(TOPIC, partition, **fields)
    console.run(console.observer.poll())


@pytest.fixture
def opened(console: LargeConsole, page: Page) -> Page:
    page.goto(f"{console.address}/#/cluster")
    expect(chip(page, 0, 1)).to_have_text("leads")
    return page


def test_a_replica_that_falls_out_of_sync_or_returns_flashes(console: LargeConsole, opened: Page) -> None:
    expect(flashing(opened, 0)).to_have_count(0)
    shown_after(console, 0, in_sync_replicas=(1, 2))
    expect(chip(opened, 0, 3)).to_have_text("behind")
    expect(flashing(opened, 0)).to_have_text("behind")
    assert flashing(opened, 0).evaluate("each => getComputedStyle(each).animationName") == "flash"
    shown_after(console, 0, in_sync_replicas=(1, 2, 3))
    expect(chip(opened, 0, 3)).to_have_text("in sync")
    expect(flashing(opened, 0)).to_have_text("in sync")
    expect(opened.locator(".timeline")).to_contain_text(f"{TOPIC}-0: replica 3 fell out of sync.")
    expect(opened.locator(".timeline")).to_contain_text(f"{TOPIC}-0: replica 3 back in sync.")


def test_a_replica_that_a_move_adds_flashes(console: LargeConsole, opened: Page) -> None:
    expect(chip(opened, 1, 9)).to_have_count(0)
    shown_after(console, 1, replicas=(2, 3, 4, 9))
    expect(chip(opened, 1, 9)).to_have_text("behind")
    expect(flashing(opened, 1)).to_have_count(1)
    shown_after(console, 1, replicas=(2, 3, 9), in_sync_replicas=(2, 3, 9))
    expect(chip(opened, 1, 4)).to_have_count(0)
    expect(flashing(opened, 1)).to_have_text("in sync")
    expect(opened.locator(".timeline")).to_contain_text(f"{TOPIC}-1: replicas 2,3,4,9 -> 2,3,9.")


def test_a_new_leader_goes_on_flashing_when_another_replica_changes(console: LargeConsole, opened: Page) -> None:
    shown_after(console, 2, leader=4, leader_epoch=2)
    shown_after(console, 2, in_sync_replicas=(4, 5))
    expect(chip(opened, 2, 3)).to_have_text("behind")
    expect(flashing(opened, 2)).to_have_count(2)
    expect(chip(opened, 2, 4)).to_have_class("chip leader changed")
