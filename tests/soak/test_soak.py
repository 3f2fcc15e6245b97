"""The short form of `make soak`, and whether it would notice what must not be."""

from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.soak.activities import TransactionReader
from tests.soak.activity import Activity, Latencies
from tests.soak.run import table
from tests.soak.soak import Report, soak
from tests.soak.usage import Usage, growth

SHORT_S = 20.0
MB = 1 << 20


@pytest.mark.processes
@pytest.mark.clients
@pytest.mark.timeout(600)
def test_three_brokers_under_work_of_all_kinds_stay_well(tmp_path: Path) -> None:
    report = soak(SHORT_S, tmp_path / "data", print, records_per_s=300, report_s=5.0)
    assert report.problems == [], "\n".join(table(report))
    assert table(report)[-1].startswith("PASSED")


class Failing(Activity):
    def __init__(self, error: Exception) -> None:
        super().__init__("failing")
        self._error = error

    def step(self) -> None:
        self.end()
        raise self._error


def run(activity: Activity) -> Activity:
    activity.start()
    activity.join()
    return activity


def test_an_error_is_counted_by_its_name_and_a_mistake_is_a_problem() -> None:
    found = run(Failing(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))))
    assert (dict(found.errors), found.problems) == ({"NOT_LEADER_FOR_PARTITION": 1}, [])
    (problem,) = run(Failing(ValueError("why"))).problems
    assert "ValueError: why" in problem


def test_the_known_race_of_librdkafka_is_counted_apart() -> None:
    found = run(Failing(KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE))))
    assert (found.known_races, dict(found.errors), found.problems) == (1, {}, [])


def test_percentiles_of_latencies() -> None:
    latencies = Latencies()
    assert (latencies.percentile_ms(99), latencies.max_ms) == (0.0, 0.0)
    for number in range(1, 101):
        latencies.add(number / 1000)
    assert (latencies.percentile_ms(50), latencies.percentile_ms(99), latencies.max_ms) == (50.0, 99.0, 100.0)


def test_memory_and_descriptors_that_grow_are_noticed() -> None:
    flat = [Usage(100 * MB, 50)] * 9
    assert growth("broker", flat) == []
    assert growth("broker", [*flat, Usage(190 * MB, 110)]) == []
    assert growth("broker", [*flat, Usage(300 * MB, 50)]) == ["broker: memory grew from 100 to 300 MB"]
    assert growth("broker", [*flat, Usage(100 * MB, 200)]) == ["broker: descriptors grew from 50 to 200"]
    assert len(growth("broker", [])) == 1


@pytest.mark.parametrize(
    ("seen", "problems"),
    [
        ({b"a": 3, b"doubt": 3}, 0),
        ({b"a": 3}, 0),
        ({b"a": 2}, 1),
        ({b"a": 4}, 1),
        ({}, 1),
        ({b"a": 3, b"stray": 3}, 1),
    ],
)
def test_transactions_that_are_not_whole_are_noticed(seen: dict[bytes, int], problems: int) -> None:
    reader = TransactionReader.__new__(TransactionReader)
    reader.seen = Counter(seen)
    assert len(reader.judge({b"a"}, {b"doubt"})) == problems


def test_a_report_with_a_problem_is_bad() -> None:
    report = Report(1.0, [], {}, 0, ["a broker has died"])
    assert not report.is_good
    assert table(report)[-2:] == ["  a broker has died", "FAILED after 1 s"]
