"""The page with 100 brokers, 10,000 partitions and 1,000 groups: what is drawn, sent and asked for."""

import asyncio
from collections.abc import Generator, Sequence

import pytest
from playwright.sync_api import Page, expect

from tests.console.chromium import TIME_LIMIT_MS, needs_chromium
from tests.console.large_cluster import GROUPS, LargeConsole, large_console
from tidelog.console.groups import Groups
from tidelog.console.observer import message_of
from tidelog.console.snapshot import difference, snapshot_of

pytestmark = needs_chromium


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Generator[LargeConsole]:
    async def list_groups(groups: Groups) -> list[dict[str, object]]:
        return [
            {"id": f"group-{number:04}", "kind": "classic", "state": "Stable", "coordinator": 1}
            for number in range(GROUPS)
        ]

    async def lags(groups: Groups, names: Sequence[str]) -> dict[str, object]:
        return {name: {"lag": 7, "trend": "growing"} for name in names}

    monkeypatch.setattr(Groups, "list_groups", list_groups)
    monkeypatch.setattr(Groups, "lags", lags)
    with large_console() as found:
        yield found


def test_ten_thousand_partitions_scroll_and_follow_elections(console: LargeConsole, page: Page) -> None:
    page.goto(f"{console.address}/#/cluster", timeout=TIME_LIMIT_MS)
    expect(page.locator('[data-partition="topic-000-0"]')).to_be_visible()
    page.locator(".grid").evaluate("grid => grid.scrollTo(0, grid.scrollHeight)")
    expect(page.locator('[data-partition="topic-099-99"]')).to_be_visible()
    assert page.locator(".grid-row").count() < 100
    _assert_an_election_is_pushed(console, page)
    page.get_by_label("Filter topics").fill("topic-042")
    page.locator(".grid").evaluate("grid => grid.scrollTo(0, 0)")
    expect(page.locator('[data-partition="topic-042-0"]')).to_be_visible()
    page.goto(f"{console.address}/#/groups")
    expect(page.locator("main")).to_contain_text("Show more of 1,000")
    page.get_by_label("Filter groups").fill("group-0999")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("growing")


def _assert_an_election_is_pushed(console: LargeConsole, page: Page) -> None:
    """The console looks at the cluster once, and the page shows the new leaders without a request of its own."""
    page.locator(".grid").evaluate("grid => grid.scrollTo(0, 0)")
    led_by_1 = page.locator('[data-partition="topic-000-0"] .chip.leader')
    expect(led_by_1).to_have_count(1)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    console.cluster.kill(1)
    console.run(console.observer.poll())
    expect(page.locator('[data-partition="topic-000-0"] .chip.offline')).to_have_count(1)
    expect(page.locator('[data-partition="topic-000-0"] .chip.leader.changed')).to_have_count(1)
    expect(page.locator(".timeline")).to_contain_text("Broker 1 is gone. It led 100 partitions.")
    assert asked == []


def test_a_lost_broker_is_noticed_without_asking_for_partitions(console: LargeConsole) -> None:
    """A look at 10,000 partitions is too dear for twice a second; a look at the brokers is not."""
    observer, looks = console.observer, console.cluster.asked

    def is_urgent() -> bool:
        return bool(asyncio.run_coroutine_threadsafe(observer.has_other_brokers(), console.loop).result(60))

    looks.clear()
    assert not is_urgent()
    console.cluster.kill(1)
    assert is_urgent()
    assert looks == [[], []]
    console.run(observer.poll())
    assert not is_urgent()


def test_an_update_has_the_size_of_what_changed(console: LargeConsole) -> None:
    before = console.observer.snapshot
    assert difference(before, snapshot_of(console.cluster.metadata, before, 1)) is None
    console.cluster.kill(1)
    after = snapshot_of(console.cluster.metadata, before, 1)
    # 300 of 10,000 partitions have a replica on the broker.
    assert len(message_of("change", difference(before, after))) < 25_000
    where, partition = next(iter(after.partitions.items()))
    moved = after._replace(partitions={**after.partitions, where: partition._replace(leader_epoch=9)})
    assert len(message_of("change", difference(after, moved))) < 250
