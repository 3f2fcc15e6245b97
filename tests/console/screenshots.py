"""Pictures of every page and dialog for a person's eye: `python -m tests.console.screenshots DIRECTORY [NAME ...]`.

Light and dark, wide and narrow, on a cluster that has something to show: a broker that is gone, a group that is behind,
an open and a hanging transaction, a pipeline, quotas, values of several kinds and a long name.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Page, sync_playwright

from bench import wire
from tests.cli.process import tidelog
from tests.console.chromium import CHROMIUM
from tests.console.running_console import RunningConsole, running_console
from tidelog.pipelines.running.pipeline_state import STATE_VARIABLE, PipelineState, RunState

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LONG = "a-topic-with-a-name-that-is-much-longer-than-any-column-of-a-table-would-like-it-to-be.v1"
HOUR_MS = 3_600_000
VIEWS = {
    "cluster": "cluster?partition=orders-0",
    "topics": "topics",
    "messages": "topic/orders?from=earliest",
    "partitions": "topic/orders/partitions",
    "producers": "topic/payments/producers",
    "settings": "topic/orders/settings",
    "long-name": f"topic/{LONG}/partitions",
    "groups": "groups",
    "group": "group/billing",
    "transactions": "transactions",
    "pipelines": "pipelines",
    "access": "access",
    "brokers": "brokers",
    "broker": "broker/1",
    "charts": "charts",
}
SCROLLED = ("messages", "settings", "broker")
"""Views that are many screens high: their first."""
DIALOGS = {
    "create-topic": ("topics", "Create a topic"),
    "produce": ("topic/orders", "Produce a record"),
    "add-partitions": ("topic/orders", "Add partitions"),
    "delete": ("topic/orders", "Delete"),
    "edit-setting": ("topic/orders/settings", "Edit"),
    "move": ("cluster?partition=orders-0", "Move"),
    "abort": ("transactions", "Abort"),
    "kill": ("brokers", "Kill"),
    "reset": ("group/billing", "Preview"),
}


def main(directory: Path, names: Sequence[str]) -> None:
    """Without names, all of them."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="screenshots-") as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with _cluster(Path(scratch)) as (bootstrap, data), _pipelines(Path(scratch)) as state:
            options = ("--manage", "--data", str(data))
            with running_console(bootstrap, *options, **{STATE_VARIABLE: str(state)}) as console:
                tidelog("kill", "3", "--data", str(data))
                _take_all(browser, console, directory, names)
        with _login(Path(scratch)) as console:
            _each_look(browser, directory, "login", partial(_open, console=console, view=""))
        browser.close()
    print(f"{len(list(directory.glob('*.png')))} pictures in {directory}")


def _take_all(browser: Browser, console: RunningConsole, directory: Path, names: Sequence[str]) -> None:
    for name, view in VIEWS.items():
        if name in names or not names:
            _each_look(browser, directory, name, partial(_open, console=console, view=view))
    for name, (view, button) in DIALOGS.items():
        if name in names or not names:
            press = partial(_press, console=console, view=view, button=button)
            _each_look(browser, directory, f"dialog-{name}", press)


def _each_look(browser: Browser, directory: Path, name: str, prepare: Callable[[Page], None]) -> None:
    for theme in ("light", "dark"):
        for width, size in (("wide", WIDE), ("narrow", NARROW)):
            page = browser.new_page(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
            prepare(page)
            page.screenshot(path=directory / f"{name}-{theme}-{width}.png", full_page=name not in SCROLLED)
            page.close()


def _open(page: Page, console: RunningConsole, view: str) -> None:
    page.goto(f"{console.origin}/#/{view}")
    page.locator("h1").wait_for()
    page.wait_for_timeout(1500)  # what the view asks for is there


def _press(page: Page, console: RunningConsole, view: str, button: str) -> None:
    _open(page, console, view)
    page.get_by_role("button", name=button, exact=True).first.click()
    page.wait_for_timeout(300)


# ---- something to show


@contextmanager
def _cluster(scratch: Path) -> Generator[tuple[str, Path]]:
    data = scratch / "data"
    settings = ("--set", "transaction.partition.verification.enable=false")
    done = tidelog("up", "--detach", "--port", "0", "--data", str(data), *settings)
    assert done.returncode == 0, done.stderr
    try:
        bootstrap = done.stdout.splitlines()[-1].removeprefix("bootstrap: ")
        _fill(bootstrap)
        yield bootstrap, data
    finally:
        tidelog("down", "--data", str(data))


def _fill(bootstrap: str) -> None:
    for topic in ("orders", "payments", "stuck", LONG):
        tidelog("topic", "create", topic, "--partitions", "6", "--bootstrap", bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(2000):
        value = json.dumps({"id": number, "sku": f"part-{number % 17}", "price": number % 100})
        producer.produce("orders", value, f"customer-{number % 31}", headers=[("source", "web")])
        producer.poll(0)
    producer.produce("orders", b"\x00\x01\xfe binary", "bytes")
    producer.produce("orders", None, "a tombstone")
    producer.flush(60)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    consumer.consume(700, 60)
    consumer.commit(asynchronous=False)
    writer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payer", "transaction.timeout.ms": 600_000})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce("payments", "paid")
    writer.flush(60)
    KEPT.extend([consumer, writer])
    _leave_hanging(bootstrap)
    tidelog("quota", "set", "--user", "alice", "producer_byte_rate=1048576", "--bootstrap", bootstrap)


KEPT: list[object] = []
"""Clients that stay connected while pictures are taken."""


def _leave_hanging(bootstrap: str) -> None:
    batch = wire.transactional(wire.record_batch([b"lost"], time.time_ns() // 1_000_000 - HOUR_MS), 4711, 0, 0)
    for address in bootstrap.split(","):  # one of them leads the partition
        with wire.Connection(int(address.rpartition(":")[2])) as connection:
            connection.ask(wire.produce_frame("stuck", {0: batch}, transactional_id="nobody-knows"))


@contextmanager
def _pipelines(scratch: Path) -> Generator[Path]:
    directory = scratch / "pipelines"
    file = scratch / "orders.toml"
    file.write_text('[[sources]]\ndead_letters = "orders"\n')
    query = {"name": "orders_by_hour", "state": "running", "rows_in": 123456, "rows_in_per_second": 812.5}
    query |= {"bytes_in_per_second": 104857.6, "rows_out": 4711, "lag": 1300, "batches": 42, "batch_duration_ms": 730}
    state = PipelineState(directory, "orders")
    with state.running(file):
        state.report(RunState.RUNNING, progress={"queries": [query], "dead_letters": 3, "ui": "http://localhost:4040"})
        yield directory


@contextmanager
def _login(scratch: Path) -> Generator[RunningConsole]:
    template = scratch / "client.properties"
    template.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    with running_console("127.0.0.1:9", "--login", "--command-config", str(template)) as console:
        yield console


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"), sys.argv[2:])
