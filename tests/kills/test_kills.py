"""Killed pipelines lose nothing; and the check would notice if they did."""

import random
from pathlib import Path

import pytest

from tests.kills.plan import CLUSTER_TARGETS, planned_kills
from tests.kills.step_trial import strike
from tests.kills.steps import Blow, Step, Victim
from tests.kills.trial import Outcome, Trial, carry_out
from tests.kills.verdict import Findings, examine, is_good_table, is_good_topic
from tests.spark.pipeline_process import is_command_of_worker

PRODUCED = {"a": 3, "b": 1}
ALL = [("a", 0), ("b", 0), ("a", 1), ("a", 2)]


def test_what_is_complete_is_good() -> None:
    found = examine(PRODUCED, ALL)
    assert found == Findings(4, lost=0, again=0, out_of_order=0, unknown=0)
    assert is_good_topic(found)
    assert is_good_table(found)


def test_a_replay_is_noticed() -> None:
    found = examine(PRODUCED, [("a", 0), ("a", 1), ("a", 0), ("a", 1), ("a", 2), ("b", 0)])
    assert found == Findings(6, lost=0, again=2, out_of_order=0, unknown=0)
    assert not is_good_topic(found)
    assert not is_good_table(found)


@pytest.mark.parametrize("left_out", range(len(ALL)))
def test_a_lost_record_is_noticed(left_out: int) -> None:
    found = examine(PRODUCED, ALL[:left_out] + ALL[left_out + 1 :])
    assert found.lost == 1
    assert not is_good_topic(found)
    assert not is_good_table(found)


def test_a_record_before_its_predecessor_is_noticed_in_a_topic() -> None:
    found = examine(PRODUCED, [("a", 1), ("a", 0), ("b", 0), ("a", 2)])
    assert found == Findings(4, lost=0, again=0, out_of_order=1, unknown=0)
    assert not is_good_topic(found)
    assert is_good_table(found)


def test_a_record_that_nobody_produced_is_noticed() -> None:
    assert examine(PRODUCED, [*ALL, ("a", 3), ("c", 0)]).unknown == 2


def test_kills_are_the_same_for_one_seed_and_hit_every_kind_of_process() -> None:
    plans = [planned_kills(20, random.Random(seed), CLUSTER_TARGETS) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert {planned.target for planned in plans[0]} == set(CLUSTER_TARGETS)


def test_java_is_not_taken_for_a_python_worker() -> None:
    assert is_command_of_worker("/venv/bin/python3.11 -m pyspark.daemon pyspark.worker")
    assert is_command_of_worker("/venv/bin/python -m tidelog.spark.accelerators.fork_server /tmp/socket 3")
    assert not is_command_of_worker("/java/bin/java -cp /venv/lib/python3.11/site-packages/pyspark/jars/* SparkSubmit")
    assert not is_command_of_worker("")


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_a_worker_killed_around_the_commit_costs_no_record_and_repeats_none(tmp_path: Path) -> None:
    blows = [Blow(step, Victim.WORKER) for step in (Step.IN_WRITE, Step.BEFORE_COMMIT, Step.AFTER_COMMIT)]
    found = strike(blows, 5, tmp_path, print, on_cluster=False)
    assert is_good_topic(found), found
    assert found.records > 0


def test_windows_must_be_there_and_whole() -> None:
    whole = examine(PRODUCED, ALL)
    assert Outcome(1, 4, whole, whole, 0, whole).is_good
    assert not Outcome(1, 4, whole, whole, 0, examine(PRODUCED, [*ALL, ("a", 1)])).is_good
    assert not Outcome(1, 4, whole, whole, 0, examine({}, [])).is_good


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_a_pipeline_killed_three_times_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    outcome = carry_out(Trial(kills=3, seed=5, on_cluster=False), tmp_path, print)
    assert outcome.is_good, outcome
    assert outcome.produced > 0
