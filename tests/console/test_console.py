"""The console as a process, asked over HTTP: what it shows of a cluster, and what it refuses."""

import json
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.cli.process import tidelog
from tests.console.running_console import RunningConsole, running_console
from tidelog.testing import Cluster

TIME_LIMIT_S = 120


@pytest.fixture(scope="module")
def kafka() -> Generator[Cluster]:
    settings = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2, "num.partitions": 2}
    with Cluster(brokers=3, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def console(kafka: Cluster) -> Generator[RunningConsole]:
    _fill(kafka)
    with running_console(kafka.bootstrap_servers, "--manage") as running:
        assert _until(lambda: running.get("/api/topics"))
        yield running


def _fill(kafka: Cluster) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "t"})
    producer.init_transactions(30)
    for ending, count in (("commit", 3), ("abort", 2)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce("orders", f'{{"id": {number}}}', b"k", partition=0, headers=[("how", ending)])
        producer.flush(30)
        producer.commit_transaction(30) if ending == "commit" else producer.abort_transaction(30)
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "shop/1"}
        | {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["orders"])
    message = None
    while message is None or message.error():
        message = consumer.poll(30)
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def _until(condition: "object") -> object:
    deadline = time.monotonic() + TIME_LIMIT_S
    while time.monotonic() < deadline:
        found = condition()  # type: ignore[operator]
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("did not come true")


def test_messages_show_the_state_of_their_transactions(console: RunningConsole) -> None:
    page = console.get("/api/topics/orders/messages?start=earliest&limit=50")
    states = [(each["offset"], each.get("marker") or each["transaction"]) for each in page["records"]]
    assert states == [
        *((offset, "committed") for offset in (0, 1, 2)),
        (3, "commit"),
        *((offset, "aborted") for offset in (4, 5)),
        (6, "abort"),
    ]
    assert page["is_at_end"]


def test_messages_can_be_filtered_and_paged(console: RunningConsole) -> None:
    by_path = console.get("/api/topics/orders/messages?start=earliest&path=id%3D2")
    assert [each["offset"] for each in by_path["records"]] == [2]
    by_header = console.get("/api/topics/orders/messages?start=earliest&header=abort")
    assert [each["offset"] for each in by_header["records"]] == [4, 5]
    first = console.get("/api/topics/orders/messages?start=earliest&partitions=0&limit=2")
    assert first["next_offsets"] == {"0": 2}
    following = console.get("/api/topics/orders/messages?partitions=0&limit=2&cursor=0:2")
    assert [each["offset"] for each in following["records"]] == [2, 3]


def test_of_very_many_headers_the_page_gets_the_first(console: RunningConsole, kafka: Cluster) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("headers", "v", headers=[(f"h{number}", "x") for number in range(20_000)], partition=0)
    producer.flush(30)
    (found,) = console.get("/api/topics/headers/messages?start=earliest&header=h19999")["records"]
    assert (len(found["headers"]), found["more_headers"]) == (100, 19_900)


def test_a_download_holds_what_matches(console: RunningConsole) -> None:
    lines = console.read("/api/topics/orders/download?start=earliest&header=commit").splitlines()
    assert [json.loads(line)["value"] for line in lines] == [{"id": 0}, {"id": 1}, {"id": 2}]
    sheet = console.read("/api/topics/orders/download?start=earliest&format=csv").decode()
    assert sheet.count("committed") == 3
    assert console.read("/api/topics/orders/download?start=earliest&format=parquet")[:4] == b"PAR1"
    assert console.refused("/api/topics/orders/download?format=doc")[0] == 400
    assert console.refused("/api/topics/none/download")[0] == 502


def test_a_wrong_question_is_answered_with_a_sentence(console: RunningConsole) -> None:
    for path in (
        "topics/orders/messages?start=yesterday",
        "topics/orders/messages?limit=x",
        f"topics/orders/messages?start={'9' * 5000}",
        "topics/orders/messages?partitions=0,x",
        f"topics/orders/messages?path={'a.' * 30_000}",
        "brokers/1/log",
        "topics/none",
        "groups/none",
        "groups/shop%2F1?reset_to=soon",
    ):
        status, reason = console.refused(f"/api/{path}")
        assert status in (400, 502)
        assert "error" in reason


def test_partitions_have_start_last_stable_high_watermark_and_end(console: RunningConsole) -> None:
    found = console.get("/api/topics/orders")["offsets"]["0"]
    assert found == {"start": 0, "last_stable": 7, "high_watermark": 7, "end": 7}


def test_producers_of_a_topic_are_those_of_its_leaders(console: RunningConsole) -> None:
    (found,) = console.get("/api/topics/orders/producers")
    assert (found["partition"], found["last_sequence"], found["transaction_start"]) == (0, 4, None)


def test_a_group_is_shown_with_its_lag(console: RunningConsole) -> None:
    group = console.get("/api/groups/shop%2F1")
    lags = [(each["partition"], each["committed"], each["end"], each["lag"]) for each in group["partitions"]]
    assert (0, 1, 7, 6) in lags
    assert all(each["seconds"] >= 0 for each in group["partitions"] if each["lag"])
    preview = console.get("/api/groups/shop%2F1?reset_to=latest")
    assert {"topic": "orders", "partition": 0, "committed": 1, "new": 7} in preview
    shifted = console.get("/api/groups/shop%2F1?reset_to=-5&topic=orders")
    assert {"topic": "orders", "partition": 0, "committed": 1, "new": 0} in shifted


def test_a_partition_is_explained(console: RunningConsole) -> None:
    found = console.get("/api/partitions/orders/0")
    assert found["leader"] in found["in_sync"]
    assert "orders-0 is healthy" in found["why"][0]


def test_wrong_fields_of_a_change_are_reported(console: RunningConsole) -> None:
    for change, wanted in (
        ("create-topic", {"topic": 7}),
        ("create-topic", {"topic": "x", "settings": [1]}),
        ("add-partitions", {"topic": "orders", "count": "many"}),
        ("move", {"topic": "orders", "partition": 0, "replicas": "1,2"}),
        ("set", {"kind": "topic", "name": "orders"}),
        ("reset-offsets", {"group": "shop/1", "to": None}),
        ("explode", {}),
    ):
        status, answer = console.change(change, wanted)
        assert status == 400, answer


def test_topics_are_changed_with_manage(console: RunningConsole) -> None:
    assert console.change("create-topic", {"topic": "made", "partitions": "1", "factor": "3"})[0] == 200
    wanted = {"kind": "topic", "name": "made", "key": "retention.ms", "value": "60000"}
    assert console.change("set", wanted)[0] == 200
    settings = {each["name"]: each for each in _until(lambda: console.get("/api/topics/made"))["settings"]}  # type: ignore[index]
    assert (settings["retention.ms"]["value"], settings["retention.ms"]["source"]) == ("60000", "topic")
    assert settings["retention.ms"]["about"]
    status, answer = console.change("set", wanted | {"value": "never"})
    assert status == 502
    assert "retention.ms" in answer
    assert console.change("produce", {"topic": "made", "value": "one"})[0] == 200
    assert console.change("add-partitions", {"topic": "made", "count": 3})[0] == 200
    assert console.change("delete-topic", {"topic": "made"})[0] == 200


def test_forged_changes_are_refused(console: RunningConsole) -> None:
    assert console.change("delete-topic", {"topic": "orders"}, Origin="http://evil.example")[0] == 403
    assert console.refused("/api/topics", Host="evil.example")[0] == 421
    assert "orders" in {each["name"] for each in console.get("/api/topics")}


def test_answers_carry_the_headers_that_keep_scripts_out(console: RunningConsole) -> None:
    for path in ("/", "/api/about", "/static/app.js"):
        headers = console.headers(path)
        assert "script-src 'self';" in headers["Content-Security-Policy"]
        assert "default-src 'none';" in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"http://" not in console.read("/")


def test_a_console_without_manage_changes_nothing(kafka: Cluster) -> None:
    with running_console(kafka.bootstrap_servers, "--token", "secret") as running:
        assert "secret" not in running.url
        assert running.refused("/api/about")[0] == 401
        cookie = {"Cookie": f"a[b]=1; tidelog_console_{running.port}=secret"}
        assert running.get("/api/about", **cookie)["manage"] is False
        status, reason = running.change("delete-topic", {"topic": "orders"}, **cookie)
        assert (status, "read-only" in reason) == (403, True)


def test_a_taken_port_is_one_sentence(console: RunningConsole, kafka: Cluster, tmp_path: Path) -> None:
    port = console.host.rpartition(":")[2]
    done = tidelog("console", "--bootstrap", kafka.bootstrap_servers, "--port", port)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "choose another --port" in done.stderr
