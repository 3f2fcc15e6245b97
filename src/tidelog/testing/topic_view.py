"""Records of a topic of a test cluster, and assertions on them whose errors show what was found instead."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.testing.cluster_view import TopicRecord

POLL_S = 0.01
MAX_SHOWN = 20
"""Records that the message of a failed assertion shows."""

MAX_SHOWN_BYTES = 60


class _Anything:
    """Default of an argument that may be None."""

    def __repr__(self) -> str:
        return "anything"


_ANY: Any = _Anything()


class TopicView:
    """Records that clients with `isolation.level=read_committed` would see."""

    def __init__(self, call: Callable[..., Any], name: str) -> None:
        self._call = call
        self.name = name

    def records(self, *, committed: bool = True) -> list[TopicRecord]:
        """All records by partition and offset. `committed=False`: also of open and aborted transactions."""
        found: list[TopicRecord] = self._call("view.records", self.name, is_committed=committed)
        return found

    def should_have(
        self,
        *,
        key: "bytes | str | None" = _ANY,
        value: "bytes | str | None" = _ANY,
        headers: "Mapping[str, bytes | str | None]" = _ANY,
        partition: int = _ANY,
        count: int | None = None,
        within: float = 0.0,
    ) -> list[TopicRecord]:
        """Assert that there are records like this: at least one, or exactly `count`. Returns them.

        `within`: seconds to wait for them. Text is compared as UTF-8.
        """
        wanted = {
            name: given
            for name, given in (("key", key), ("value", value), ("headers", headers), ("partition", partition))
            if given is not _ANY
        }
        deadline = time.monotonic() + within
        while True:
            records = self.records()
            matching = [record for record in records if _matches(record, wanted)]
            if (matching if count is None else len(matching) == count) or (count == 0 and not matching):
                return matching
            if time.monotonic() >= deadline or (count is not None and len(matching) > count):
                raise AssertionError(_failure_text(self.name, wanted, count, matching, records))
            time.sleep(POLL_S)

    def should_be_empty(self) -> None:
        """Assert that there is no record."""
        self.should_have(count=0)


def _matches(record: TopicRecord, wanted: Mapping[str, Any]) -> bool:
    for name, given in wanted.items():
        if name == "headers":
            found = dict(record.headers)
            if any(header not in found or found[header] != _bytes(text) for header, text in given.items()):
                return False
        elif getattr(record, name) != _bytes(given):
            return False
    return True


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _failure_text(
    topic: str,
    wanted: Mapping[str, Any],
    count: int | None,
    matching: list[TopicRecord],
    records: list[TopicRecord],
) -> str:
    expected = "at least one record" if count is None else f"{count} record{'' if count == 1 else 's'}"
    condition = ", ".join(f"{name}={given!r}" for name, given in wanted.items())
    lines = [
        f"topic {topic!r} should have {expected}{' with ' + condition if condition else ''}, "
        f"but has {len(matching)} of them among {len(records)} record{'' if len(records) == 1 else 's'}:"
    ]
    marks = {id(record) for record in matching}
    lines += [f"  {'*' if id(record) in marks else ' '} {_line(record)}" for record in records[:MAX_SHOWN]]
    if len(records) > MAX_SHOWN:
        lines.append(f"    and {len(records) - MAX_SHOWN} more")
    if not records:
        lines[0] = lines[0].replace(" among 0 records:", ": it is empty, or does not exist")
    return "\n".join(lines)


def _line(record: TopicRecord) -> str:
    headers = f" headers={dict(record.headers)!r}" if record.headers else ""
    return f"{record.partition}:{record.offset} key={_short(record.key)} value={_short(record.value)}{headers}"


def _short(value: bytes | None) -> str:
    if value is None or len(value) <= MAX_SHOWN_BYTES:
        return repr(value)
    return f"{value[:MAX_SHOWN_BYTES]!r}... ({len(value)} bytes)"
