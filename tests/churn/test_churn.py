"""Groups and transactions of real clients, as processes that are killed and made to stand still, with their brokers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.churn import group_trial, transaction_trial
from tests.churn.brokers import Brokers
from tests.churn.group_trial import GroupTrial
from tests.churn.membership import Protocol
from tests.churn.transaction_trial import TransactionTrial, inexact

pytestmark = [pytest.mark.processes, pytest.mark.clients, pytest.mark.timeout(600)]

Group = group_trial.Disturbance
Copy = transaction_trial.Disturbance

GROUPS = {
    "eager": GroupTrial(
        ("kafka-python", "aiokafka", "confluent-kafka"),
        Protocol.EAGER,
        (Group.JOIN, Group.KILL_MEMBER, Group.KILL_COORDINATOR),
        seed=3,
    ),
    "assigned by the broker": GroupTrial(
        ("confluent-kafka",),
        Protocol.CONSUMER,
        (Group.JOIN, Group.OVERSLEEP, Group.KILL_COORDINATOR),
        seed=2,
    ),
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    found = Brokers(tmp_path_factory.mktemp("brokers"))
    try:
        found.start()
        yield found
        found.stop()
        assert found.surprises() == []
    finally:
        found.close()


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_under_churn_shares_partitions_cleanly_and_passes_over_nothing(
    name: str, brokers: Brokers, tmp_path: Path
) -> None:
    outcome = group_trial.carry_out(GROUPS[name], brokers, name.replace(" ", "-"), tmp_path, print)
    assert outcome.problems == []
    assert outcome.processed >= outcome.produced > 0


def test_a_copy_in_transactions_is_exact_while_workers_and_coordinators_are_killed(
    brokers: Brokers, tmp_path: Path
) -> None:
    disturbances = (Copy.KILL_WORKER, Copy.KILL_TRANSACTION_COORDINATOR)
    trial = TransactionTrial("confluent-kafka", disturbances, seed=1)
    outcome = transaction_trial.carry_out(trial, brokers, "exact", tmp_path, print)
    assert outcome.problems == []
    assert outcome.copied > 0


def test_whatever_is_not_exact_is_noticed() -> None:
    sent = {0: [b"0:0", b"0:1", b"0:2"]}
    assert inexact(sent, {0: [b"0:0", b"0:1", b"0:2"]}) == []
    for copied in (
        [b"0:0", b"0:2"],
        [b"0:0", b"0:1", b"0:1", b"0:2"],
        [b"0:1", b"0:0", b"0:2"],
        [b"0:0", b"aborted 0:1", b"0:1", b"0:2"],
    ):
        assert len(inexact(sent, {0: copied})) == 1
    assert len(inexact(sent, {})) == 1
