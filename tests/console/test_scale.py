"""The page with 100 brokers, 10,000 partitions and 1,000 groups: only what is seen is drawn."""

import asyncio
import shutil
import socket
import threading
from collections.abc import Generator
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import expect, sync_playwright

from tidelog.client.admin.group_admin import GroupSummary
from tidelog.client.network.bootstrap import Address
from tidelog.client.routing.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.console.app import Console
from tidelog.console.gate import Entrance
from tidelog.console.groups import Groups
from tidelog.console.security import guard_of
from tidelog.console.workspace import Workspace
from tidelog.types import ZERO_UUID

BROKERS, TOPICS, PARTITIONS, GROUPS = 100, 100, 100, 1000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIME_LIMIT_MS = 60_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


def _topic(number: int) -> TopicMetadata:
    partitions = {}
    for partition in range(PARTITIONS):
        replicas = tuple((number + partition + step) % BROKERS + 1 for step in range(3))
        partitions[partition] = PartitionMetadata(partition, replicas[0], 1, replicas, replicas, ())
    return TopicMetadata(f"topic-{number:03}", ZERO_UUID, False, partitions)


class LargeCluster:
    """Answers metadata, and nothing else."""

    def __init__(self) -> None:
        brokers = {each: BrokerMetadata(each, Address("localhost", each), None) for each in range(1, BROKERS + 1)}
        topics = {topic.name: topic for topic in map(_topic, range(TOPICS))}
        self.metadata = ClusterMetadata(1, "large", 1, brokers, topics)
        self.connections: Any = None

    async def ask_topics(self, topics: object) -> ClusterMetadata:
        return self.metadata


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    async def list_groups(groups: Groups) -> list[dict[str, object]]:
        found = [GroupSummary(f"group-{number:04}", "classic", "Stable", 1) for number in range(GROUPS)]
        return [{"id": each.group_id, "kind": each.kind, "state": each.state, "coordinator": 1} for each in found]

    async def lags(groups: Groups, names: list[str]) -> dict[str, object]:
        return {name: {"lag": 7, "trend": "growing"} for name in names}

    monkeypatch.setattr(Groups, "list_groups", list_groups)
    monkeypatch.setattr(Groups, "lags", lags)
    cluster: Any = LargeCluster()
    workspace = Workspace(cluster)
    observer = workspace.observer
    asyncio.run(observer.poll())
    listener = socket.create_server(("127.0.0.1", 0))
    guard = guard_of("127.0.0.1", None, may_change=False)
    console = Console(Entrance(guard, listener.getsockname()[1], False, workspace))
    server = uvicorn.Server(uvicorn.Config(console.app(), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=[[listener]])
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    observer.close()
    server.force_exit = server.should_exit = True
    thread.join()


def test_ten_thousand_partitions_scroll(address: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        expect.set_options(timeout=TIME_LIMIT_MS)
        page.goto(f"{address}/#/cluster", timeout=TIME_LIMIT_MS)
        expect(page.locator('[data-partition="topic-000-0"]')).to_be_visible()
        page.locator(".grid").evaluate("grid => grid.scrollTo(0, grid.scrollHeight)")
        expect(page.locator('[data-partition="topic-099-99"]')).to_be_visible()
        assert page.locator(".grid-row").count() < 100
        page.get_by_label("Filter topics").fill("topic-042")
        page.locator(".grid").evaluate("grid => grid.scrollTo(0, 0)")
        expect(page.locator('[data-partition="topic-042-0"]')).to_be_visible()
        page.goto(f"{address}/#/groups")
        expect(page.locator("main")).to_contain_text("Show more of 1,000")
        page.get_by_label("Filter groups").fill("group-0999")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody tr")).to_contain_text("growing")
        browser.close()
