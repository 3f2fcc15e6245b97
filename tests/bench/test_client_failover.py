"""Failover as clients see it: what counts as acknowledged, and how trials are reported."""

from bench.client_failover import first_acknowledged, row
from bench.steady_writers import Ack, read_ack


def test_line_of_a_program_is_an_acknowledgement() -> None:
    assert read_ack("3 1500000000 2500000000\n") == Ack(3, 1.5, 2.5)


def test_only_records_of_the_partition_that_were_sent_after_the_end_count() -> None:
    acks = [Ack(0, 9.0, 10.5), Ack(1, 10.1, 10.2), Ack(0, 10.1, 12.0), Ack(0, 10.2, 11.0)]
    assert first_acknowledged(acks, 10.0, 0) == 11.0
    assert first_acknowledged(acks, 11.0, 0) is None


def test_row_has_median_and_the_slowest() -> None:
    assert row("kill", "Java", [0.1, 0.2, 0.3, 1.0, 0.25]) == "| kill | Java | 0.25 | 1.00 | 1.00 |"
