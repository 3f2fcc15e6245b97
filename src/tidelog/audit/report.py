"""Audit report: JSON, and one self-contained HTML file."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tidelog.audit.audit_run import AuditResult
from tidelog.audit.charts import Bar, bars, timeline
from tidelog.audit.finding import Finding
from tidelog.audit.style import STYLE
from tidelog.audit.summary import HotKey, LogDirSummary, Summary, TopicSummary
from tidelog.audit.text_formats import count_text, key_text, size_text, time_text
from tidelog.terminal.plurals import plural
from tidelog.types import ids_text

MAX_ROWS = 500
"""Maximum number of rows of a table in the HTML file; the JSON file has all rows."""
MAX_BARS = 20


@dataclass(frozen=True)
class Report:
    audit: AuditResult
    summary: Summary
    began_ms: int
    duration_s: float

    @property
    def is_clean(self) -> bool:
        return not self.audit.faults

    @property
    def verdict(self) -> str:
        if self.is_clean:
            return f"Clean: {plural(self.summary.replicas, 'replica')} of {self._partitions} checked, nothing found"
        faults = self.audit.faults
        hurt = {finding.topic_partition for finding in faults if finding.topic_partition is not None}
        brokers = sorted({finding.broker for finding in faults if finding.broker is not None})
        where = f" on broker{'s' if len(brokers) > 1 else ''} {ids_text(brokers)}" if brokers else ""
        return f"{plural(len(faults), 'finding')} in {len(hurt)} of {self._partitions}{where}"

    @property
    def _partitions(self) -> str:
        return plural(self.summary.partitions, "partition")


def as_json(report: Report) -> str:
    summary = report.summary
    return json.dumps(
        {
            "verdict": "clean" if report.is_clean else "findings",
            "sentence": report.verdict,
            "began": time_text(report.began_ms) + " UTC",
            "duration_s": round(report.duration_s, 3),
            "totals": {
                "partitions": summary.partitions,
                "replicas": summary.replicas,
                "segments": summary.segments,
                "batches": summary.batches,
                "bytes": summary.size_bytes,
            },
            "findings": [_finding_json(finding) for finding in report.audit.faults],
            "notes": [_finding_json(finding) for finding in report.audit.notes],
            "log_dirs": [_log_dir_json(found) for found in summary.log_dirs],
            "topics": [_topic_json(topic) for topic in summary.topics],
            "timeline": summary.timeline._asdict() if summary.timeline else None,
        },
        indent=2,
    )


def _finding_json(finding: Finding) -> dict[str, Any]:
    topic_partition, offsets = finding.topic_partition, finding.offsets
    return {
        "kind": finding.kind.value,
        "broker": finding.broker,
        "log_dir": finding.log_dir,
        "topic": topic_partition.topic if topic_partition else None,
        "partition": topic_partition.partition if topic_partition else None,
        "file": finding.file,
        "position": finding.position,
        "size_bytes": finding.size_bytes,
        "start_offset": offsets.start if offsets else None,
        "end_offset": offsets.end if offsets else None,
        "sentence": finding.sentence,
    }


def _log_dir_json(found: LogDirSummary) -> dict[str, Any]:
    return {
        "path": found.log_dir.path,
        "broker": found.log_dir.broker,
        "state": _state(found),
        "replicas": found.replicas,
        "segments": found.segments,
        "bytes": found.size_bytes,
    }


def _topic_json(topic: TopicSummary) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replicas": topic.replicas,
        "bytes": topic.size_bytes,
        "one_replica_bytes": topic.one_replica_bytes,
        "records": topic.records,
        "batches": topic.batches,
        "batches_by_codec": topic.batches_by_codec,
        "first_timestamp_ms": topic.first_timestamp_ms,
        "last_timestamp_ms": topic.last_timestamp_ms,
        "payload_bytes": topic.keys.payload_bytes if topic.keys else None,
        "compression_ratio": topic.compression_ratio,
        "records_without_key": topic.keys.null_count if topic.keys else None,
        "hot_keys": [
            {"key": key_text(key.key), "key_hex": key.key.hex(), "count": key.count, "share": key.share}
            for key in topic.hot_keys
        ],
        "hot_key_count_error": topic.keys.error if topic.keys else None,
    }


def _state(found: LogDirSummary) -> str:
    if found.log_dir.is_running:
        return "running"
    return "stopped" if found.log_dir.is_clean else "not stopped in good order"


def as_html(report: Report) -> str:
    title = "Replica audit"
    parts = [
        f'<h1>{title}</h1><p class="verdict {"good" if report.is_clean else "bad"}">{escape(report.verdict)}</p>',
        _figures(report),
        _findings("Findings", report.audit.faults),
        _findings("Notes", report.audit.notes),
        _chart("Size by topic, all replicas", _size_bars(report.summary.topics)),
        _chart("Hot keys", _key_bars(report.summary.hot_keys)),
        _section("Bytes by time of the records (UTC), one replica", timeline(report.summary.timeline)),
        _topics(report.summary.topics),
        _log_dirs(report.summary.log_dirs),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    body = "\n".join(part for part in parts if part)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>{body}</body></html>\n'


def _figures(report: Report) -> str:
    summary = report.summary
    speed = size_text(int(summary.size_bytes / report.duration_s)) + "/s" if report.duration_s > 0 else "-"
    figures = [
        ("log directories", count_text(len(summary.log_dirs))),
        ("partitions", count_text(summary.partitions)),
        ("segments", count_text(summary.segments)),
        ("batches", count_text(summary.batches)),
        ("read", size_text(summary.size_bytes)),
        ("took", f"{report.duration_s:.1f} s"),
        ("speed", speed),
        ("began (UTC)", time_text(report.began_ms)),
    ]
    cells = "".join(f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for name, value in figures)
    return f'<dl class="figures">{cells}</dl>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _chart(title: str, shown: Sequence[Bar]) -> str:
    return _section(title, bars(shown)) if shown else ""


def _size_bars(topics: Sequence[TopicSummary]) -> list[Bar]:
    return [
        Bar(topic.name, topic.size_bytes, f"{size_text(topic.size_bytes)} in {plural(topic.partitions, 'partition')}")
        for topic in topics[:MAX_BARS]
    ]


def _key_bars(hot_keys: Sequence[HotKey]) -> list[Bar]:
    return [
        Bar(f"{key.topic}: {key_text(key.key)}", key.count, f"{count_text(key.count)} ({key.share:.1%} of the topic)")
        for key in hot_keys[:MAX_BARS]
    ]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], total: int) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>and {count_text(total - MAX_ROWS)} more, all of them in the JSON</p>" if total > MAX_ROWS else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _findings(title: str, findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    titles = ("what", "broker", "partition", "file", "byte", "offsets", "in words")
    rows = [_finding_row(finding) for finding in findings[:MAX_ROWS]]
    return _section(f"{title} ({count_text(len(findings))})", _table(titles, rows, len(findings)))


def _finding_row(finding: Finding) -> list[str]:
    offsets = finding.offsets
    file = finding.file or finding.log_dir
    return [
        finding.kind.value,
        _or_dash(finding.broker),
        _or_dash(finding.topic_partition),
        file.removeprefix(f"{finding.log_dir}/") if finding.broker is not None else file,
        _or_dash(finding.position),
        f"{offsets.start}–{offsets.end - 1}" if offsets else "-",
        finding.sentence,
    ]


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _topics(topics: Sequence[TopicSummary]) -> str:
    titles = ("topic", "partitions", "replicas", "size", "records", "batches by codec", "ratio", "from", "to")
    rows = [_topic_row(topic) for topic in topics[:MAX_ROWS]]
    return _section("Topics", _table(titles, rows, len(topics)))


def _topic_row(topic: TopicSummary) -> list[str]:
    ratio = topic.compression_ratio
    return [
        topic.name,
        count_text(topic.partitions),
        count_text(topic.replicas),
        size_text(topic.size_bytes),
        count_text(topic.records),
        ", ".join(f"{name} {count_text(count)}" for name, count in topic.batches_by_codec.items()) or "-",
        "-" if ratio is None else f"{ratio:.2f}",
        _time(topic.first_timestamp_ms),
        _time(topic.last_timestamp_ms),
    ]


def _time(time_ms: int | None) -> str:
    return "-" if time_ms is None else time_text(time_ms)


def _log_dirs(log_dirs: Sequence[LogDirSummary]) -> str:
    titles = ("broker", "directory", "state", "replicas", "segments", "size")
    rows = [
        [
            _or_dash(found.log_dir.broker),
            found.log_dir.path,
            _state(found),
            count_text(found.replicas),
            count_text(found.segments),
            size_text(found.size_bytes),
        ]
        for found in log_dirs[:MAX_ROWS]
    ]
    return _section("Log directories", _table(titles, rows, len(log_dirs)))
