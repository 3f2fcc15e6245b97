"""The console in a real browser. Skipped where there is no Chromium; CI installs it."""

import shutil
from collections.abc import Generator

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect, sync_playwright

from tests.console.running_console import RunningConsole, running_console
from tidelog.testing import Cluster

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIME_LIMIT_MS = 60_000
HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


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
    with running_console(kafka.bootstrap_servers, "--manage", TIDELOG_PIPELINES=directory) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    """A page that fails the test if it logs an error, or if what came from the cluster was run."""
    opened = browser.new_page(viewport={"width": 1280, "height": 860})
    opened.set_default_timeout(TIME_LIMIT_MS)
    expect.set_options(timeout=TIME_LIMIT_MS)
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: _note(message, errors))
    yield opened
    assert opened.evaluate("window.broken") is None
    opened.close()
    assert errors == []


def _note(message: ConsoleMessage, errors: list[str]) -> None:
    if message.type == "error":
        errors.append(message.text)


@pytest.mark.parametrize(
    ("view", "text"),
    [
        ("cluster", "Timeline of the last hour"),
        ("topics", "orders"),
        ("topic/orders/partitions", "high watermark"),
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
    page.goto(f"{console.origin}/#/topic/orders")
    page.get_by_role("button", name="Live").click()
    expect(page.locator("main")).to_contain_text("waiting for new records")
    page.get_by_role("button", name="Produce a record").click()
    page.locator("dialog textarea").fill("a record of now")
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(page.locator(".message").first).to_contain_text("a record of now")


def test_a_setting_is_changed(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/topic/orders/settings")
    row = page.locator("tr", has_text="retention.ms").filter(has_not_text="delete.").filter(has_not_text="local.")
    row.get_by_role("button", name="Edit").first.click()
    expect(page.locator("dialog")).to_contain_text("Now 604800000 (default).")
    page.locator("dialog input").fill("123456")
    page.get_by_role("button", name="Set").click()
    expect(page.locator("main")).to_contain_text("123456")


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


def test_offsets_are_reset_after_a_preview(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/groups")
    page.get_by_role("link", name=HOSTILE).click()
    page.get_by_label("Reset to").select_option("earliest")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Reset the offsets").click()
    expect(page.locator("#toast")).to_contain_text("continues from new offsets")


def test_the_keyboard_reaches_everything(console: RunningConsole, page: Page) -> None:
    page.goto(f"{console.origin}/#/cluster")
    expect(page.locator(".grid-row").first).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator("h1")).to_have_text("Topics")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    expect(page.locator("input[type=search]")).to_have_value("orders")


def test_screen_readers_find_no_serious_obstacle(console: RunningConsole, page: Page) -> None:
    for view in ("cluster", "topics", "topic/orders", "groups", "brokers", "access", "charts"):
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
    for view in ("cluster", "topics", "topic/orders", "groups", "brokers", "access", "pipelines", "charts", "broker/1"):
        page.goto(f"{console.origin}/#/{view}")
        expect(page.locator("h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
