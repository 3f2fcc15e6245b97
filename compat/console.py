"""The console in front of Apache Kafka: every view in Chromium without an error, and what the views are made of."""

import tempfile
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

from compat.coordinators_of_kafka import ABORTED, ASSIGNED, BY_HAND, CLASSIC, COMMITTED, OPEN, TOPIC, Fillers
from tests.cli.process import tidelog
from tests.clients.driver import wait_until
from tests.console.chromium import CHROMIUM, watched_page
from tests.console.running_console import RunningConsole, running_console
from tools.apache_kafka import KAFKA_4, ApacheKafka, NotAvailable

VIEWS = {
    "cluster?partition=read-0": "read-0 is healthy",
    "topics": TOPIC,
    f"topic/{TOPIC}?from=earliest": "open transaction",
    f"topic/{TOPIC}/partitions": "high watermark",
    f"topic/{TOPIC}/producers": "producer",
    f"topic/{TOPIC}/settings": "retention.ms",
    "groups": ASSIGNED,
    f"group/{CLASSIC}": "records behind",
    f"group/{ASSIGNED}": "records behind",
    f"group/{BY_HAND}": "records behind",
    "transactions": OPEN,
    "pipelines": "Pipelines",
    "access": "producer_byte_rate",
    "brokers": "controller",
    "broker/1": "log.retention.hours",
    "charts": "Records written per second",
}
"""The views, and a text that each shows only when it was answered."""
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
COMMANDS = (
    ("acl", "add", "alice", "read", "topic", "rea", "--prefix"),
    ("quota", "set", "--user", "alice", "producer_byte_rate=1048576"),
)


def check(version: str = KAFKA_4) -> list[str]:
    if CHROMIUM is None:
        raise NotAvailable("the console needs Chromium: install it, for example with apt-get install chromium")
    with (
        tempfile.TemporaryDirectory(prefix="compat-console-") as scratch,
        ApacheKafka(version, data_dir=Path(scratch) / "kafka", settings=SETTINGS) as kafka,
    ):
        fillers = Fillers(kafka.bootstrap)
        fillers.fill_groups(version)
        fillers.fill_transactions()
        for command in COMMANDS:
            done = tidelog(*command, "--bootstrap", kafka.bootstrap)
            assert done.returncode == 0, done.stderr
        with running_console(kafka.bootstrap, "--manage", TIDELOG_PIPELINES=str(Path(scratch) / "none")) as console:
            return [*answers(console), *views(console), *changes(console)]


def answers(console: RunningConsole) -> list[str]:
    """What is wrong with what the console found in the cluster."""
    wait_until(lambda: bool(console.get("/api/topics")), "the console sees the topics")
    wrong: list[str] = []

    def expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            wrong.append(f"{what}: {found!r} instead of {wanted!r}")

    offsets = console.get(f"/api/topics/{TOPIC}")["offsets"]["0"]
    # Ten records, one of each of three transactions, and the markers of two: the third is open.
    expect("offsets", offsets, {"start": 0, "last_stable": 12, "high_watermark": 15, "end": 15})
    records = console.get(f"/api/topics/{TOPIC}/messages?start=earliest&limit=100")["records"]
    states = sorted(str(each.get("marker") or each["transaction"]) for each in records if each["offset"] >= 10)
    expect("transactions of records", states, ["abort", "aborted", "commit", "committed", "open"])
    producers = console.get(f"/api/topics/{TOPIC}/producers")
    expect("producers in a transaction", [each["transaction_start"] is None for each in producers].count(False), 1)
    expect("transactions", {each["transactional_id"]: each["state"] for each in console.get("/api/transactions")},
           {COMMITTED: "CompleteCommit", ABORTED: "CompleteAbort", OPEN: "Ongoing"})  # fmt: skip
    expect("hanging transactions", console.get("/api/transactions/hanging"), [])
    kinds = {each["id"]: each["kind"] for each in console.get("/api/groups")}
    expect("kinds of groups", (kinds.get(CLASSIC), kinds.get(ASSIGNED)), ("classic", "consumer"))
    for group in (CLASSIC, ASSIGNED):
        expect(f"members of {group}", len(console.get(f"/api/groups/{quote(group)}")["members"]), 1)
    access = console.get("/api/access")
    expect("permissions", [each["principal"] for each in access["acls"]["rows"]], ["User:alice"])
    expect("quotas", len(access["quotas"]["rows"]), 1)
    return wrong


def changes(console: RunningConsole) -> list[str]:
    wanted: tuple[tuple[str, dict[str, object]], ...] = (
        ("create-topic", {"topic": "made", "partitions": 1, "factor": 1}),
        ("produce", {"topic": "made", "value": "one"}),
        ("set", {"kind": "topic", "name": "made", "key": "retention.ms", "value": "60000"}),
        ("add-partitions", {"topic": "made", "count": 2}),
        ("move", {"topic": "made", "partition": 0, "replicas": [1]}),
        ("delete-topic", {"topic": "made"}),
        ("reset-offsets", {"group": BY_HAND, "to": "earliest"}),
        ("abort-transaction", {"id": OPEN}),
    )
    answered = ((name, console.change(name, fields)) for name, fields in wanted)
    return [f"{name}: {status} {answer}" for name, (status, answer) in answered if status != 200]


def views(console: RunningConsole) -> list[str]:
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for view, text in VIEWS.items():
            logged: list[str] = []
            with watched_page(browser, logged) as page:
                page.goto(f"{console.origin}/#/{view}")
                try:
                    page.locator("main", has_text=text).wait_for()
                except Exception as error:  # noqa: BLE001 - the other views are to be seen too
                    wrong.append(f"{view} does not show {text!r}: {type(error).__name__}")
                wrong += [f"{view} logs {each}" for each in logged]
                wrong += [f"{view} shows {each.inner_text()}" for each in page.locator("main .error").all()]
                logged.clear()
        browser.close()
    return wrong
