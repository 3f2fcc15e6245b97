"""Costs of the console, and how soon it shows a failover: `python -m bench.console_costs [TRIALS]`.

Failover: the leader of a partition is killed with SIGKILL while a page is open in Chromium. Measured are the time until
another broker names the new leader, and the time from then until the page has drawn it.
Live tail: the time from the answer to a produce request until the page has drawn the record.
Groups: CPU of the console with 1,000 groups, while the page of groups is open.
Cost: 100 brokers, 10,000 partitions and 1,000 groups as the console meets them, without brokers that would take the
processor for themselves: CPU time of one look at the cluster, bytes of an update, CPU of an open page that is idle.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, sync_playwright

from bench import wire
from tests.console.large_cluster import BROKERS, GROUPS, LargeCluster, LargeConsole, large_console
from tests.console.running_console import RunningConsole, running_console
from tidelog.cli.client_command import command_network
from tidelog.client import Producer as TidelogProducer
from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.network.bootstrap import parse_bootstrap
from tidelog.client.routing.cluster import Cluster as ClientCluster
from tidelog.console.observer import MAX_SHARE, message_of
from tidelog.console.snapshot import Snapshot, as_json, difference, snapshot_of
from tidelog.console.timeline import Timeline
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.runtime.randomness import SystemRandomness
from tidelog.testing import Cluster
from tidelog.types import TopicPartition

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
METADATA_VERSION = 12
IDLE_S = 30.0
SETTLE_S = 10.0
TAIL_TRIALS = 20
FIRST_TRIALS = 5
TIME_LIMIT_MS = 60_000
ROW = '[data-partition="orders-0"]'

# The page notes when the row of the partition was redrawn: no round trip of the test is in the figure.
WATCH = """([row, leader]) => {
  window.shownAt = null;
  const trial = window.trial = (window.trial ?? 0) + 1;
  const look = () => {
    if (trial !== window.trial) return; // that of an earlier leader
    const leads = document.querySelector(row)?.querySelector(".grid-cell:has(.chip.leader)")?.dataset.broker;
    if (leads && Number(leads) !== leader && window.shownAt === null) window.shownAt = Date.now() / 1000;
    requestAnimationFrame(look);
  };
  look();
}"""

# When the page had each record of the live view.
TAILED = """() => {
  window.tailed = {};
  const look = () => {
    const text = document.querySelector(".message")?.textContent.match(/live-\\d+\\./)?.[0];
    if (text && !(text in window.tailed)) window.tailed[text] = Date.now() / 1000;
    requestAnimationFrame(look);
  };
  look();
}"""

# When the first replicas were painted, in ms since the address was opened.
FIRST = """(() => {
  const look = () => {
    if (!document.querySelector(".grid-row .chip.leader")) requestAnimationFrame(look);
    else requestAnimationFrame(() => { document.documentElement.dataset.firstPicture = performance.now(); });
  };
  look();
})();"""

WEIGHT = """performance.getEntriesByType("resource").filter((each) => each.name.includes("/static/"))
  .reduce((all, each) => all + each.encodedBodySize, 0)"""


def main(trials: int) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        failovers(browser, trials)
        groups(browser)
        costs(browser)
        browser.close()
    print(f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())}")


# ---- failover


def failovers(browser: Browser, trials: int) -> None:
    with tempfile.TemporaryDirectory(prefix="console-costs-") as directory:
        data = str(Path(directory) / "data")
        bootstrap = (
            _tidelog("up", "--detach", "--port", "0", "--data", data).splitlines()[-1].removeprefix("bootstrap: ")
        )
        try:
            _tidelog(
                "topic", "create", "orders", "--partitions", "12", "--replication-factor", "3", "--bootstrap", bootstrap
            )
            with running_console(bootstrap) as console:
                page = browser.new_page()
                page.goto(f"{console.origin}/#/cluster")
                page.wait_for_selector(f"{ROW} .chip.leader", timeout=TIME_LIMIT_MS)
                measured = [_failover(page, data) for _ in range(trials)]
                page.close()
                live_tail(browser, console, bootstrap)
        finally:
            _tidelog("down", "--data", data)
    for title, index in (("kill to election", 0), ("election to the page", 1), ("kill to the page", 2)):
        found = sorted(trial[index] for trial in measured)
        print(f"{title}: median {median(found):.2f} s, longest {found[-1]:.2f} s, {trials} trials")


def _failover(page: Page, data: str) -> tuple[float, float, float]:
    status = _status(data)
    leader = next(
        each["leader"] for each in status["partitions"] if (each["topic"], each["partition"]) == ("orders", 0)
    )
    victim = next(each for each in status["brokers"] if each["id"] == leader)
    witness = next(each for each in status["brokers"] if each["id"] != leader)
    page.evaluate(WATCH, [ROW, leader])
    connection = wire.Connection(witness["port"])
    os.kill(victim["pid"], signal.SIGKILL)
    killed_s = time.time()
    while _leader(connection) in (leader, None):
        time.sleep(0.005)
    elected_s = time.time()
    while (shown_s := page.evaluate("window.shownAt")) is None:
        time.sleep(0.05)
    _tidelog("start", str(leader), "--data", data)
    while _status(data)["health"] != "healthy":
        time.sleep(0.5)
    return elected_s - killed_s, shown_s - elected_s, shown_s - killed_s


def _leader(connection: wire.Connection) -> int | None:
    state = wire.topic_state(connection.ask(wire.metadata_frame("orders"))).partitions.get(0)
    return None if state is None else state.leader


def _status(data: str) -> Any:
    return json.loads(_tidelog("status", "--json", "--data", data))


def _tidelog(*arguments: str) -> str:
    command = [sys.executable, "-m", "tidelog", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout.strip()


# ---- live tail


def live_tail(browser: Browser, console: RunningConsole, bootstrap: str) -> None:
    page = browser.new_page()
    page.goto(f"{console.origin}/#/topic/orders")
    page.get_by_role("button", name="Live").click()
    page.wait_for_selector("text=waiting for new records", timeout=TIME_LIMIT_MS)
    page.evaluate(TAILED)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    measured = []
    for number in range(TAIL_TRIALS):
        producer.produce("orders", f"live-{number}.", partition=0)
        producer.flush()
        produced_s = time.time()
        while (shown_s := page.evaluate(f"window.tailed['live-{number}.']")) is None:
            time.sleep(0.02)
        measured.append(shown_s - produced_s)
    found = sorted(measured)
    print(f"produce to the live page: median {median(found):.2f} s, longest {found[-1]:.2f} s, {TAIL_TRIALS} trials")
    page.close()


# ---- groups


def groups(browser: Browser) -> None:
    with Cluster(brokers=3, settings={"offsets.topic.num.partitions": 6}) as kafka:
        with ThreadPoolExecutor(1) as thread:  # that of the browser has an event loop of its own
            thread.submit(asyncio.run, _make_groups(kafka.bootstrap_servers)).result()
        with running_console(kafka.bootstrap_servers) as console:
            page = browser.new_page()
            page.goto(f"{console.origin}/#/groups")
            page.wait_for_selector("text=group-0001", timeout=TIME_LIMIT_MS)
            time.sleep(SETTLE_S)
            before_s = _cpu_s(console.pid)
            time.sleep(IDLE_S)
            share = (_cpu_s(console.pid) - before_s) / IDLE_S
            print(f"console with {GROUPS:,} groups, their page open: {100 * share:.1f} % of a core")
            page.close()


async def _make_groups(bootstrap: str) -> None:
    async with TidelogProducer(bootstrap) as producer:
        for _ in range(5):
            await producer.send("orders", b"x", partition=0)
    client = ClientCluster(command_network(None), parse_bootstrap(bootstrap), SystemRandomness())
    async with client:
        admin = GroupAdmin(client, timeout_s=60.0)
        for first in range(0, GROUPS, 50):
            names = [f"group-{number:04}" for number in range(first, first + 50)]
            await asyncio.gather(*(admin.commit(name, {TopicPartition("orders", 0): 2}) for name in names))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- cost


def costs(browser: Browser) -> None:
    frame = _metadata_frame()
    cluster = LargeCluster()
    before = snapshot_of(cluster.metadata, Snapshot(), 0)
    timeline = Timeline()
    began_s = time.process_time()
    turns = 5
    for _ in range(turns):
        cluster.metadata.updated(decode(MetadataResponse, METADATA_VERSION, frame), has_all_topics=True)
        after = snapshot_of(cluster.metadata, before, 1)
        assert difference(before, after) is None
        timeline.observe(before, after)
    turn_s = (time.process_time() - began_s) / turns
    print(f"one look at 10,000 partitions: {turn_s * 1000:.0f} ms of CPU, so one every {turn_s / MAX_SHARE:.1f} s")
    print(f"first picture: {len(message_of('cluster', as_json(before))):,} bytes")
    cluster.kill(1)
    lost = snapshot_of(cluster.metadata, before, 1)
    size = len(message_of("change", difference(before, lost)))
    print(f"a broker of {BROKERS} dies, 300 partitions change: {size:,} bytes")
    with large_console() as console:
        _idle_page(browser, console)


def _idle_page(browser: Browser, console: LargeConsole) -> None:
    opened = [_opened(browser, console) for _ in range(FIRST_TRIALS)]
    found = sorted(first_ms for _, first_ms in opened)
    times = f"median {median(found):.0f} ms, shortest {found[0]:.0f} ms, longest {found[-1]:.0f} ms"
    print(f"first picture of 10,000 partitions after the address was opened: {times}, {FIRST_TRIALS} trials")
    page = opened.pop()[0]
    for each, _ in opened:
        each.close()
    weight = page.evaluate(WEIGHT)
    print(f"page: {weight:,} bytes of script, style and pictures")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def task_s() -> float:
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return float(metrics["TaskDuration"])

    before_s = task_s()
    time.sleep(IDLE_S)
    print(f"idle page of 10,000 partitions: {(task_s() - before_s) * 60_000 / IDLE_S:.0f} ms of main thread per minute")
    console.cluster.kill(1)
    before_s = task_s()
    console.run(console.observer.poll())
    page.wait_for_selector(".grid-broker.down", state="attached", timeout=TIME_LIMIT_MS)
    page.wait_for_timeout(3000)
    print(f"the death of a broker, drawn: {(task_s() - before_s) * 1000:.0f} ms of main thread")


def _opened(browser: Browser, console: LargeConsole) -> tuple[Page, float]:
    """A page, and the time until its first picture in ms."""
    page = browser.new_page()
    page.add_init_script(FIRST)
    page.goto(f"{console.address}/#/cluster")
    page.wait_for_selector("html[data-first-picture]", state="attached", timeout=TIME_LIMIT_MS)
    return page, float(page.evaluate("document.documentElement.dataset.firstPicture"))


def _metadata_frame() -> bytes:
    metadata = LargeCluster().metadata
    topics = [
        MetadataResponseTopic(
            name=topic.name,
            partitions=[
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=each.leader,
                    leader_epoch=each.leader_epoch,
                    replica_nodes=each.replicas,
                    isr_nodes=each.in_sync_replicas,
                )
                for number, each in topic.partitions.items()
            ],
        )
        for topic in metadata.topics.values()
    ]
    brokers = [MetadataResponseBroker(node_id=each, host="localhost", port=each) for each in metadata.brokers]
    return encode(MetadataResponse(brokers=brokers, topics=topics), METADATA_VERSION)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
