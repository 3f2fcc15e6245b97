"""Part about Spark of the page about compatibility, from findings."""

from compat.spark_page import REASONS, Finding, faults, section

SAME = Finding("Tidelog", "batch", "assign", [])
OTHER = Finding("Tidelog", "stream", "assign", ["tidelog gives 3 rows, kafka gives 4"])
ON_KAFKA = Finding("Apache Kafka", "batch", "assign", [])


def test_every_place_has_a_column_and_what_was_not_asked_there_stays_empty() -> None:
    text = section([SAME, OTHER, ON_KAFKA])
    assert "| | Tidelog | Apache Kafka |" in text
    assert "| batch: assign | yes | yes |" in text
    assert "| stream: assign | **NO** |  |" in text


def test_a_difference_without_a_reason_is_a_fault() -> None:
    assert faults([SAME, ON_KAFKA]) == []
    assert faults([OTHER]) == ["Spark on Tidelog, stream, assign: tidelog gives 3 rows, kafka gives 4"]


def test_a_difference_with_a_reason_is_reported_and_is_no_fault() -> None:
    title, reason = next(iter(REASONS.items()))
    meant = Finding("Tidelog", "options of a batch", title, ["tidelog says: no"])
    assert faults([meant]) == []
    assert f"- {title}: {reason}\n" in section([meant])
    assert "0 of 1 options" in section([meant])


def test_a_reason_does_not_excuse_other_rows() -> None:
    title = next(iter(REASONS))
    assert faults([Finding("Tidelog", "options of a batch", title, ["tidelog gives 3 rows", "kafka gives 4 rows"])])


def test_a_reason_does_not_excuse_what_does_not_differ() -> None:
    title = next(iter(REASONS))
    assert f"- {title}:" not in section([Finding("Tidelog", "options of a batch", title, [])])
