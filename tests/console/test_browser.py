"""The console in a real browser. Skipped where there is no Chromium; CI installs it."""

import re
from collections.abc import Generator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Page, Route, expect

from tests.console.chromium import needs_chromium
from tests.console.running_console import RunningConsole, running_console
from tidelog.console.messages import FETCH_WAIT_MS, TAIL_PAUSE_S
from tidelog.testing import Cluster

HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'

PROMETHEUS = "http://prometheus.example:9090/graph"

VIEWS = (
    "cluster?partition=orders-0",
    "topics",
    "topic/orders",
    "topic/orders/partitions",
    "topic/orders/producers",
    "topic/orders/settings",
    "groups",
    f"group/{quote(HOSTILE, safe='')}",
    "transactions",
    "pipelines",
    "brokers",
    "broker/1",
    "access",
    "charts",
)

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def kafka() -> Generator[Cluster]:
    settings = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2, "num.partitions": 3}
    with Cluster(brokers=3, settings=settings | {"default.replication.factor": 3}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("orders", HOSTILE, HOSTILE, headers=[(HOSTILE, HOSTILE)])
        producer.flush(30)
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": HOSTILE, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        while consumer.poll(30) is None:
            pass
        consumer.commit(asynchronous=False)
        consumer.close()
        yield cluster


@pytest.fixture(scope="module")
def console(kafka: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Generator[RunningConsole]:
    directory = str(tmp_path_factory.mktemp("pipelines"))
    options = ("--manage", "--prometheus", PROMETHEUS)
    with running_console(kafka.bootstrap_servers, *options, TIDELOG_PIPELINES=directory) as running:
        yield running


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("cluster", "Timeline of the last hour"),
        ("topics", "orders"),
        ("topic/orders/partitions", "high watermark"),
        ("topic/orders/producers", "producer"),
        ("topic/orders/settings", "retention.ms"),
        ("groups", "<img src=x"),
        ("transactions", "No transactional ids yet."),
        ("pipelines", "No pipeline has run"),
        ("access", "No quotas."),
        ("brokers", "controller"),
        ("broker/1", "log.retention.ms"),
        ("charts", "The last hour"),
    ],
)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_loads(console: RunningConsole, page: Page, view: str, text: str, theme: str) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.goto(f"{console.origin}/#/{view}")
    expect(page.locator("main")).to_contain_text(text)
    assert page.evaluate("document.documentElement.dataset.theme") == theme


def test_hostile_keys_values_headers_and_groups_are_text(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/topic/orders?from=earliest")
    page.locator(".message summary").first.click()
    expect(page.locator(".message pre")).to_have_count(3)
    expect(page.locator(".message pre").first).to_have_text(HOSTILE)
    page.goto(f"{console.origin}/#/groups")
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.locator("h1")).to_have_text(HOSTILE)
    expect(page.locator("main")).to_contain_text("records behind")


def test_live_waits_for_records_only_once_the_server_has_noted_where_they_begin(
    console: RunningConsole, page: Page
) -> None:
    held: list[Route] = []
    page.route("**/tail?*", lambda route: held.append(route))
    page.goto(f"{console.origin}/#/topic/orders")
    page.get_by_role("button", name="Live").click()
    expect(page.locator("main")).to_contain_text("connecting…")
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()
    expect(page.locator("main")).to_contain_text("waiting for new records")


def test_live_shows_what_is_produced(console: RunningConsole, kafka: Cluster, page: Page) -> None:
    """The server pushes it: the page asks for nothing, and the server looks more often than once a second."""
    page.goto(f"{console.origin}/#/topic/orders")
    page.get_by_role("button", name="Live").click()
    expect(page.locator("main")).to_contain_text("waiting for new records")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    assert TAIL_PAUSE_S + FETCH_WAIT_MS / 1000 < 1
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("orders", "a record of now")
    producer.flush(30)
    expect(page.locator(".message").first).to_contain_text("a record of now")
    assert asked == []


def test_a_setting_is_changed(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/topic/orders/settings")
    row = page.locator("tr", has_text="retention.ms").filter(has_not_text="delete.").filter(has_not_text="local.")
    row.get_by_role("button", name="Edit").first.click()
    expect(page.locator("dialog")).to_contain_text("Now 604800000, 7 days (default).")
    page.locator("dialog input").fill("123456")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("main")).to_contain_text("123456")


def _take_refusal(errors: list[str]) -> None:
    assert "status of 502" in errors.pop()


def test_a_value_that_the_cluster_refuses_leaves_the_dialog_open(
    console: RunningConsole, page: Page, errors: list[str]
) -> None:
    page.goto(f"{console.origin}/#/topic/orders/settings")
    expect(page.locator("main")).to_contain_text("What happens to old records")  # the explanation
    page.locator("tr", has_text="cleanup.policy").get_by_role("button", name="Edit").click()
    page.locator("dialog input").fill("burn")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("dialog .error")).to_contain_text("cleanup.policy")
    expect(page.locator("dialog input")).to_have_value("burn")
    _take_refusal(errors)
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_a_topic_is_created_filled_grown_and_deleted(console: RunningConsole, page: Page, errors: list[str]) -> None:
    page.goto(f"{console.origin}/#/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name", exact=True).fill("short lived")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.locator("dialog .error")).to_contain_text("name")
    _take_refusal(errors)
    page.get_by_label("Name", exact=True).fill("short-lived")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_role("link", name="short-lived").click()
    for key, value, headers in (("k1", '{"sku": {"id": 7}}', "source=web"), ("k2", "plain text", "")):
        page.get_by_role("button", name="Produce a record").click()
        page.get_by_label("Key", exact=True).fill(key)
        page.get_by_label("Value", exact=True).fill(value)
        page.get_by_label("Headers").fill(headers)
        page.get_by_role("button", name="Produce", exact=True).click()
        expect(page.locator("dialog")).to_have_count(0)
    for filter_, text, found in (
        ("key contains", "k2", "k2"),
        ("value contains", "plain", "k2"),
        ("header contains", "source=web", "k1"),
        ("JSON path=value", "sku.id=7", "k1"),
    ):
        page.get_by_label(filter_).fill(text)
        page.get_by_role("button", name="Read").click()
        expect(page.locator(".message")).to_have_count(1)
        expect(page.locator(".message")).to_contain_text(found)
        page.get_by_label(filter_).fill("")
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#toast")).to_contain_text("has 4 partitions now")
    page.get_by_role("button", name="Delete").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("h1")).to_have_text("Topics")
    expect(page.get_by_role("link", name="short-lived")).to_have_count(0)


def test_a_bar_of_the_volume_picks_the_time(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/topic/orders")
    expect(page.locator(".message").first).to_be_visible()
    page.locator(".bars button").first.click()
    expect(page.get_by_label("Begin at")).to_have_value("time")
    expect(page.locator(".message").first).to_be_visible()
    page.goto("about:blank")
    page.go_back()  # the address holds the choice
    expect(page.get_by_label("Begin at")).to_have_value("time")
    expect(page.locator(".message").first).to_be_visible()
    page.get_by_label("Begin at").select_option("offset")
    page.get_by_label("offset", exact=True).fill("soon")
    page.get_by_role("button", name="Read").click()
    expect(page.locator("main .error")).to_have_text("Give an offset: a number such as 0.")


def test_charts_have_the_lag_and_a_link_to_prometheus(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/charts")
    expect(page.get_by_role("link", name="Prometheus")).to_have_attribute("href", PROMETHEUS)
    lag = page.locator(".card", has_text="Records that all groups are behind")
    expect(lag.locator("svg path").first).to_have_attribute("d", re.compile("^M.*L"))
    for title in ("Records written per second", "Round trip to brokers"):
        expect(page.locator(".card", has_text=title).locator("svg")).to_be_visible()


def test_focus_mode_shows_favourites_in_every_list(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/topics")
    page.get_by_role("button", name="Focus").click()
    expect(page.locator("main")).to_contain_text("there are none")
    page.keyboard.press("1")
    expect(page.locator(".grid")).to_contain_text("there are none")
    expect(page.get_by_role("button", name="Focus", pressed=True)).to_be_visible()
    page.goto(f"{console.origin}/#/topic/orders")
    page.get_by_role("button", name="Favourite orders", pressed=False).click()
    expect(page.get_by_role("button", name="Favourite orders", pressed=True)).to_be_visible()
    for view in ("cluster", "topics"):
        page.goto(f"{console.origin}/#/{view}")
        expect(page.locator("main").get_by_role("link", name="orders").first).to_be_visible()
    page.goto(f"{console.origin}/#/groups")
    expect(page.locator("main")).to_contain_text("No group matches.")
    page.get_by_role("button", name="Focus").click()
    page.get_by_role("button", name=f"Favourite {HOSTILE}").click()
    page.get_by_role("button", name="Focus").click()
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()


def test_the_address_holds_filter_and_partition(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster")
    page.get_by_label("Filter topics").fill("order")
    page.locator('[data-partition="orders-2"] button').first.click()
    expect(page.locator("aside h2").first).to_have_text("orders-2")
    address = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_label("Filter topics")).to_have_value("order")
    expect(page.locator("aside")).to_contain_text("orders-2 is healthy")


def test_a_move_flashes_the_replicas_that_it_changes(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster?partition=orders-1")
    for replicas, chips in (("1,2", 2), ("1,2,3", 3)):
        page.get_by_role("button", name="Move", exact=True).click()
        page.locator("dialog input").fill(replicas)
        page.get_by_role("button", name="Move", exact=True).last.click()
        expect(page.locator('[data-partition="orders-1"] .chip')).to_have_count(chips)
        expect(page.locator("aside")).to_contain_text(f"its {chips} replicas are in sync")
    added = page.locator('[data-partition="orders-1"] [data-broker="3"] .chip')
    expect(added).to_have_class(re.compile("changed"))
    assert added.evaluate("chip => getComputedStyle(chip).animationName") == "flash"
    expect(page.locator(".timeline")).to_contain_text("orders-1: replicas")


def test_elect_makes_the_first_replica_the_leader(console: RunningConsole, kafka: Cluster, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster?partition=orders-0")
    led_by = page.locator('[data-partition="orders-0"] .grid-cell:has(.chip.leader)')
    expect(led_by).to_have_count(1)
    first = int(console.get("/api/partitions/orders/0")["replicas"][0])
    kafka.kill(first)
    try:
        expect(led_by).not_to_have_attribute("data-broker", str(first))
    finally:
        kafka.start(first)
    expect(page.locator("aside")).to_contain_text("its 3 replicas are in sync")
    page.get_by_role("button", name="Elect the first replica").click()
    expect(led_by).to_have_attribute("data-broker", str(first))
    expect(page.locator(".timeline")).to_contain_text("orders-0: the preferred leader was elected")


def test_nothing_is_asked_of_anybody_else_and_the_page_is_light(console: RunningConsole, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for view in VIEWS:
        page.goto(f"{console.origin}/#/{view}")
        expect(page.locator("h1")).to_be_visible()
    assert [url for url in asked if not url.startswith(console.origin)] == []
    loaded = {url for url in asked if "/static/" in url} | {console.origin + "/"}
    assert sum(len(console.read(url.removeprefix(console.origin))) for url in loaded) < 300_000


def test_a_killed_leader_shows_and_the_replica_says_why(console: RunningConsole, kafka: Cluster, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster")
    expect(page.locator(".grid-row").first).to_contain_text("leads")
    kafka.kill(2)
    try:
        expect(page.locator(".chip.offline").first).to_be_visible()
        expect(page.locator("#status")).to_contain_text("1 broker down")
        expect(page.locator(".timeline")).to_contain_text("Broker 2 is gone")
        page.locator(".chip.offline").first.click()
        expect(page.locator("aside")).to_contain_text("out of sync")
        page.goto(f"{console.origin}/#/broker/2")
        expect(page.locator("main")).to_contain_text("Broker 2 is not in the cluster now.")
    finally:
        kafka.start(2)
    expect(page.locator("main")).to_contain_text("Log directories")
    page.goto(f"{console.origin}/#/cluster")
    expect(page.locator("#status")).to_have_text("healthy")
    expect(page.locator(".timeline")).to_contain_text("back in sync")
    returned = page.locator(".event", has_text="Broker 2 is up at").first
    expect(returned.locator(".kind .pill.good")).to_have_text("broker up")


def test_offsets_are_reset_after_a_preview(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/groups")
    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_label("Reset to").select_option("earliest")
    path = f"/api/groups/{quote(HOSTILE, safe='')}"
    before = {each["partition"]: each["committed"] for each in console.get(path)["partitions"]}
    page.get_by_role("button", name="Preview").click()
    preview = page.locator("table").last.locator("tbody tr")
    expect(preview.first.locator("td").nth(3)).to_have_text("0")  # the new offset
    assert before == {each["partition"]: each["committed"] for each in console.get(path)["partitions"]}
    assert any(before.values())
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.locator("#toast")).to_contain_text("continues from new offsets")
    assert {each["committed"] for each in console.get(path)["partitions"]} == {0}


def test_the_keyboard_reaches_everything(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster")
    expect(page.locator(".grid-row").first).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator("h1")).to_have_text("Topics")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(page.locator("input[type=search]")).to_have_value("orders")


def test_screen_readers_find_no_serious_obstacle(console: RunningConsole, page: Page) -> None:
    for view in VIEWS:
        page.goto(f"{console.origin}/#/{view}")
        expect(page.locator("h1")).to_be_visible()
        expect(page.locator("#status")).to_have_text("healthy")
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            found = Axe().run(page).response["violations"]
            serious = [
                (each["id"], [node["html"] for node in each["nodes"]][:3])
                for each in found
                if each["impact"] in ("serious", "critical")
            ]
            assert serious == [], (view, theme)


def test_a_narrow_screen_does_not_scroll_sideways(console: RunningConsole, page: Page) -> None:
    page.set_viewport_size({"width": 380, "height": 800})
    for view in VIEWS:
        page.goto(f"{console.origin}/#/{view}")
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
