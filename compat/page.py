"""docs/compatibility.md, from what all parts have found on one commit."""

from collections.abc import Mapping, Sequence

from compat import command_line, matrix, spark_page
from compat.answers import check as same_responses
from compat.findings import Findings, Kept, together
from compat.foreign import FOREIGN_CLIENTS, ForeignClient

INTRODUCTION = """\
# Compatibility

Made by `make compat`; do not edit. Every client runs the same features against a cluster of three brokers with three
replicas of each partition; what a feature does is in `tests/clients/features.py`. "yes": it works. "-": the client (or
that version of the tool) does not offer it. "**NO**": it fails. "?": the client was not available on the machine. An
empty cell: the suite does not try that with this client.
"""

HELPED_BY_THE_DRIVER = (
    "kafkajs has no consumer without a group: its own connection layer below the consumer fetches here",
    "@platformatic/kafka also returns records of partitions that a member has just lost: the suite ignores them",
)


def page(parts: Mapping[str, Kept], commit: str) -> str:
    findings = together(kept.findings for kept in parts.values())
    return "\n".join([INTRODUCTION, origin(parts, commit), *sections(findings)])


def origin(parts: Mapping[str, Kept], commit: str) -> str:
    """Of which commit, when, and what was not found at the first try."""
    dates = sorted(kept.date for kept in parts.values())
    repeated = [f"{part} ({kept.tries} tries)" for part, kept in parts.items() if kept.tries > 1]
    text = f"All of it on commit {commit}, from {dates[0]} to {dates[-1]}."
    return f"{text} Repeated: {'; '.join(repeated)}.\n" if repeated else f"{text}\n"


def sections(found: Findings) -> list[str]:
    versions = "".join(f"| {name} | {release} |\n" for name, release in found.releases.items())
    checks = "".join(f"| {title} | {'**NO**' if wrong else 'yes'} |\n" for title, wrong in found.files.items())
    parts = []
    if found.outcomes:
        parts.append(f"## Clients\n\n| client | version |\n| --- | --- |\n{versions}")
        parts.append(f"## Features\n\n{matrix.table(found.outcomes)}")
    if found.tools:
        parts.append(f"## Kafka's own command line tools\n\n{command_line.table(found.tools)}")
    if found.files:
        parts.append(f"## Files\n\n| check | |\n| --- | --- |\n{checks}")
    if found.responses:
        parts.append(same_responses.section(found.responses))
    if found.on_spark:
        parts.append(spark_page.section(found.on_spark))
    if limits := limits_of(FOREIGN_CLIENTS):
        parts.append(f"## Remarks\n\n{limits}")
    if failures := matrix.remarks(found.outcomes) + "".join(f"- {fault}\n" for fault in found.faults()):
        parts.append(f"## What failed or was not run\n\n{failures}")
    return parts


def limits_of(clients: Sequence[ForeignClient]) -> str:
    own = "".join(
        f"- {client.name}, {feature}: {reason}\n" for client in clients for feature, reason in client.limits.items()
    )
    return own + "".join(f"- {remark}\n" for remark in HELPED_BY_THE_DRIVER)
