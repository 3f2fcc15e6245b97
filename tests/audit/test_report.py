"""The report: the same facts for people and programs, one file that needs nothing from elsewhere."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.audit.written_logs import WrittenBroker, batches, flip, places
from tidelog.audit.audit_run import AuditOptions, LocalRunner, audit
from tidelog.audit.job import TASK_BYTES, progress_line, share_out
from tidelog.audit.replica_facts import Timeline
from tidelog.audit.report import Report, as_html, as_json
from tidelog.audit.summary import merge_timelines, summarise
from tidelog.audit.text_formats import key_text, size_text
from tidelog.types import TopicPartition

HOSTILE = TopicPartition("<script>alert(1)</script>", 0)


@pytest.fixture
def brokers(tmp_path: Path) -> list[WrittenBroker]:
    found = [WrittenBroker(tmp_path, broker) for broker in (1, 2)]
    for broker in found:
        broker.write(batches(12))
    return found


def report_on(root: Path) -> Report:
    found = audit(AuditOptions([str(root)]), LocalRunner())
    return Report(found, summarise(found, 3), began_ms=1_700_000_000_000, duration_s=2.0)


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "rect", "line"):
            self.open.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag


def test_clean_report_says_so(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    report = report_on(tmp_path)
    assert report.verdict == "Clean: 2 replicas of 1 partition checked, nothing found"
    decoded = json.loads(as_json(report))
    assert (decoded["verdict"], decoded["findings"]) == ("clean", [])
    (topic,) = decoded["topics"]
    assert (topic["records"], topic["batches_by_codec"]) == (60, {"uncompressed": 12})
    assert [key["key"] for key in topic["hot_keys"]] == ["key-0", "key-1", "key-2"]
    assert topic["hot_keys"][0]["share"] == pytest.approx(0.2)


def test_findings_stand_in_both_forms(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    damaged = places(brokers[1])[5]
    flip(damaged.file, damaged.position + 70)
    report = report_on(tmp_path)
    assert report.verdict == "1 finding in 1 of 1 partition on broker 2"
    (finding,) = json.loads(as_json(report))["findings"]
    assert finding == {
        "kind": "corrupt batch",
        "broker": 2,
        "log_dir": str(brokers[1].path),
        "topic": "orders",
        "partition": 0,
        "file": str(damaged.file),
        "position": damaged.position,
        "size_bytes": damaged.size_bytes,
        "start_offset": 25,
        "end_offset": 30,
        "sentence": "the CRC does not match (offsets 25 to 29)",
    }
    page = as_html(report)
    assert "orders-0/00000000000000000020.log" in page
    assert page.index("corrupt batch") < page.index("<svg")


def test_page_is_well_formed_and_fetches_nothing(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    tags = Tags(as_html(report_on(tmp_path)))
    assert tags.open == []
    assert tags.addresses == []
    assert re.findall(r"url\(|@import|<script", as_html(report_on(tmp_path))) == []


def test_names_from_the_disk_cannot_become_markup(brokers: list[WrittenBroker], tmp_path: Path) -> None:
    found = audit(AuditOptions([str(tmp_path)]), LocalRunner())
    summary = summarise(found, 3)
    (topic,) = summary.topics
    hostile = [type(topic)(**{**vars(topic), "name": HOSTILE.topic})]
    page = as_html(Report(found, type(summary)(**{**vars(summary), "topics": hostile}), 0, 0.0))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_timelines_are_laid_over_each_other() -> None:
    merged = merge_timelines([Timeline(0, 1000, (5, 0, 7)), None, Timeline(100_000, 2000, (1, 2))])
    assert merged is not None
    assert sum(merged.bucket_bytes) == 15
    assert merged.bucket_bytes[0] == 5
    assert merge_timelines([None]) is None


def test_work_is_shared_out_by_size() -> None:
    assert share_out([60, 10, 10, 10, 10, 10], 2) == [[0], [1, 2, 3, 4, 5]]
    assert len(share_out([TASK_BYTES] * 10, 2)) == 10
    assert share_out([1, 1], 8) == [[0], [1]]


def test_texts() -> None:
    assert progress_line(3, 10, 4 * 1024 * 1024, 2.0) == "3 of 10 segments, 4.0 MiB, 2.0 MiB/s"
    assert size_text(1023) == "1023 B"
    assert key_text(b"plain") == "plain"
    assert key_text(b"\xff\x00") == r"\xff\x00"
    assert len(key_text(b"x" * 500)) == 60
