"""Part about Spark of the page about compatibility."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from compat import spark_options, spark_writing
from compat.spark_peers import OURS
from tools import spark_kafka_connector

TITLE = "## Spark"
INTRODUCTION = f"""\
`format("tidelog")` and Spark's own `format("kafka")` (connector {spark_kafka_connector.VERSION}) run the same
queries in one session. "yes": the same schema, and the same rows in every column; a query that writes leaves the same
records, those with keys in the same partitions, as librdkafka reads them.
"""
SAME = """\
{same} of {all} options, values and rows that may be refused are refused by both or accepted by both. The others:
"""
REMARKS = """\
Beyond that, `format("tidelog")` writes a column `timestamp` as the time of the record, which this version of the
connector ignores; divides a batch into exactly `minPartitions` tasks and by `maxRecordsPerPartition`, of which the
connector approximates the first and ignores the second; has `maxBytesPerTrigger`, `driverReadRows` and `fetchBytes`;
takes secrets of TLS and SASL only from the environment or files; and lacks Spark's continuous and real-time triggers,
which Spark does not offer to sources in Python. It continues a checkpoint that the connector began; the connector
cannot continue one of `format("tidelog")`, which also has the ids of topics.
"""
REASONS: Mapping[str, str] = {**spark_options.REASONS, **spark_writing.REASONS}
"""By title, why a difference is meant to be."""


@dataclass(frozen=True)
class Finding:
    where: str
    what: str
    title: str
    differences: Sequence[str]

    @property
    def reason(self) -> str | None:
        """Only a refusal of ours can be meant to be: other rows never are."""
        is_rejection = any(difference.startswith(f"{OURS} says: ") for difference in self.differences)
        return REASONS.get(self.title) if is_rejection else None

    @property
    def is_fault(self) -> bool:
        return bool(self.differences) and self.reason is None

    @property
    def verdict(self) -> str:
        return "**NO**" if self.is_fault else "differs" if self.differences else "yes"


def section(findings: Sequence[Finding]) -> str:
    results = [finding for finding in findings if not finding.what.startswith("options")]
    options = [finding for finding in findings if finding.what.startswith("options")]
    same = sum(not finding.differences for finding in options)
    text = f"{TITLE}\n\n{INTRODUCTION}\n{table(results)}\n{SAME.format(same=same, all=len(options))}\n"
    return text + f"{differing(findings)}\n{REMARKS}"


def table(findings: Sequence[Finding]) -> str:
    places = list(dict.fromkeys(finding.where for finding in findings))
    head = f"| | {' | '.join(places)} |\n| --- |{' --- |' * len(places)}\n"
    verdicts = {(finding.what, finding.title, finding.where): finding.verdict for finding in findings}
    rows = dict.fromkeys((finding.what, finding.title) for finding in findings)
    return head + "".join(
        f"| {what}: {title} | {' | '.join(verdicts.get((what, title, place), '') for place in places)} |\n"
        for what, title in rows
    )


def differing(findings: Sequence[Finding]) -> str:
    """Each difference that is meant to be, once, with its reason."""
    reasons = [(finding.title, finding.reason) for finding in findings if finding.reason]
    return "".join(f"- {title}: {reason}\n" for (title, reason), _ in groupby(dict.fromkeys(sorted(reasons))))


def faults(findings: Sequence[Finding]) -> list[str]:
    return [
        f"Spark on {finding.where}, {finding.what}, {finding.title}: {'; '.join(finding.differences)}"
        for finding in findings
        if finding.is_fault
    ]
