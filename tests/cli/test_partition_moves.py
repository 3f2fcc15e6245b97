"""Plan files, texts and progress of `tidelog partition move`, and the diagnosis of a partition."""

import argparse
import json
from types import SimpleNamespace
from typing import cast

import pytest

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.view import OutOfSync, PartitionView
from tidelog.cli.partition import _brokers_option, _rate_option
from tidelog.cli.partition_diagnosis import Findings, diagnosis
from tidelog.cli.partition_moves.plan_file import parse_plan, plan_json
from tidelog.cli.partition_moves.progress import Copy, Progress
from tidelog.client.admin.reassignment_admin import Reassignment
from tidelog.client.admin.replication_throttle import ThrottleAdmin, ThrottledMove, throttled_replicas
from tidelog.client.network.retries import Attempts, GaveUp
from tidelog.client.routing.cluster import Cluster
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.randomness import SeededRandomness
from tidelog.runtime.virtual_time import run_virtually
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
MB = 1_000_000


def test_plan_file_is_what_kafkas_tool_reads_and_prints() -> None:
    plan = {ORDERS: (3, 1), TopicPartition("orders", 1): (2,)}
    text = plan_json(plan)
    assert json.loads(text)["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "replicas": [3, 1],
        "log_dirs": ["any", "any"],
    }
    assert parse_plan(text, "plan.json") == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ("[]", "no list of partitions"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": [1]}', "partition entry 1: expected an object"),
        ('{"partitions": [{"topic": "t"}]}', "expected a topic name and a partition number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "expected a list of broker ids"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "expected a list of broker ids"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "two replicas on one broker"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            "log directories",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "names t-0 twice",
        ),
    ],
)
def test_mistake_in_a_plan_file_is_named(text: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        parse_plan(text, "plan.json")


@pytest.mark.parametrize(
    ("text", "rate"), [("500", 500), ("10MB", 10 * MB), ("1.5kB/s", 1500), ("2MiB", 2 * 2**20), ("1g", 10**9)]
)
def test_rates(text: str, rate: int) -> None:
    assert _rate_option(text) == rate


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "10XB", "1e6"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        _rate_option(text)


def test_broker_lists() -> None:
    assert _brokers_option("3,4") == (3, 4)
    with pytest.raises(argparse.ArgumentTypeError):
        _brokers_option("3,")


def test_progress_has_rate_and_time_left() -> None:
    progress = Progress(
        [Copy(ORDERS, (1,), (2,), (1,), 10 * MB), Copy(TopicPartition("t", 1), (1,), (3,), (), 10 * MB)]
    )
    progress.update(0.0, [ORDERS], {(ORDERS, 2): 2 * MB, (ORDERS, 1): 10 * MB})
    assert progress.line == "1 of 2 partitions done, 12.0 MB of 20.0 MB (60 %)"
    progress.update(2.0, [ORDERS], {(ORDERS, 2): 6 * MB, (ORDERS, 1): 10 * MB})
    assert progress.lines() == [
        "1 of 2 partitions done, 16.0 MB of 20.0 MB (80 %), 2.0 MB/s, 2 s left",
        "  orders-0  [############        ]  to 2, 6.0 MB of 10.0 MB",
    ]
    progress.update(3.0, [], {})
    assert progress.is_done
    assert progress.line == "2 of 2 partitions done, 20.0 MB of 20.0 MB (100 %)"


def test_cancelled_and_deleted_partitions_are_not_called_moved() -> None:
    bills, notes = TopicPartition("bills", 0), TopicPartition("notes", 0)
    progress = Progress([Copy(each, (1,), (2,), (1,), 10 * MB) for each in (ORDERS, bills, notes)])
    progress.update(0.0, [], {})
    assert progress.is_done
    assert progress.settle({ORDERS: [2], bills: [1]}) == ["bills-0 (cancelled)", "notes-0 (deleted)"]
    assert progress.line == "1 of 3 partitions done, 10.0 MB of 30.0 MB (33 %)"


def test_partition_that_keeps_a_replica_it_should_leave_was_cancelled() -> None:
    progress = Progress([Copy(ORDERS, (1, 2), (), (2,), MB)])
    assert progress.settle({ORDERS: [1, 2]}) == ["orders-0 (cancelled)"]
    assert progress.settle({ORDERS: [1]}) == []


def test_total_grows_with_the_partition() -> None:
    progress = Progress([Copy(ORDERS, (1,), (2,), (1,), 10 * MB)])
    progress.update(0.0, [ORDERS], {(ORDERS, 1): 15 * MB, (ORDERS, 2): 10 * MB})
    assert (progress.copied_bytes, progress.total_bytes) == (10 * MB, 15 * MB)


def test_move_without_bytes_or_rate_has_a_line_too() -> None:
    progress = Progress([Copy(ORDERS, (1,), (2,), (1,), 0)])
    for now_s in (0.0, 1.0):
        progress.update(now_s, [ORDERS], {})
    assert progress.line == "0 of 1 partition done, 0 B/s, time left unknown"


def test_throttle_names_the_sources_for_leaders_and_the_added_for_followers() -> None:
    assert throttled_replicas(
        {ORDERS: ThrottledMove((1, 2), (3,)), TopicPartition("orders", 1): ThrottledMove((2,), (1,))}
    ) == {
        "orders": {
            "leader.replication.throttled.replicas": "0:1,0:2,1:2",
            "follower.replication.throttled.replicas": "0:3,1:1",
        }
    }


def findings(
    leader: int | None, in_sync: tuple[int, ...], live: set[int], move: Reassignment | None = None, **changes: object
) -> Findings:
    reasons = [OutOfSync(each, "broker is down", "start it") for each in (1, 2, 3) if each not in in_sync]
    partition = PartitionView(ORDERS, leader, 4, (1, 2, 3), in_sync, 0, {}, reasons)
    return Findings(partition, live, 2, (), move, 0)._replace(**changes)  # type: ignore[arg-type]


def test_healthy_partition_is_called_so() -> None:
    assert diagnosis(findings(1, (1, 2, 3), {1, 2, 3})) == [
        "orders-0 is healthy: broker 1 leads, and its 3 replicas are in sync (brokers 1, 2 and 3)."
    ]


def test_leader_that_is_not_preferred_is_reported_with_the_command() -> None:
    assert "`tidelog partition elect orders:0`" in diagnosis(findings(2, (1, 2, 3), {1, 2, 3}))[-1]


def test_partition_without_leader_names_who_can_save_it_and_the_last_resort() -> None:
    assert diagnosis(findings(None, (2,), {1, 3})) == [
        "orders-0 has no leader: it can be neither read nor written.",
        "Only broker 2 had every committed record when the last leader went, and it is down.",
        "Start broker 2: the partition is then served again, and nothing is lost.",
        "If the disks of broker 2 are lost: `tidelog partition elect orders:0 --unclean` makes one of brokers 1 and 3"
        " the leader. Acknowledged records that it lacks are lost then.",
    ]


def test_eligible_replica_can_lead_as_well() -> None:
    lines = diagnosis(findings(None, (2,), {1}, eligible=(3,)))
    assert (
        lines[1]
        == "Only brokers 2 and 3 had every committed record when the last leader went, and all of them are down."
    )
    assert lines[2].startswith("Start one of brokers 2 and 3")


def test_too_few_in_sync_replicas_and_a_move_are_reported() -> None:
    lines = diagnosis(findings(1, (1,), {1}, Reassignment((1, 2, 3), (3,), (2,))))
    assert lines[0] == "orders-0 is under-replicated: broker 1 leads, and 1 of 3 replicas are in sync (broker 1)."
    assert lines[1] == "Replica 2 out of sync: broker is down; start it."
    assert lines[3] == "Writes with acks=all are refused: 1 in sync, and min.insync.replicas is 2. Reading goes on."
    assert lines[4].startswith("It is being moved: replicas are added on broker 3, and removed from broker 2")


class LateBroker:
    """A cluster of one broker that applies changed topic settings only after it was asked for them a few times."""

    def __init__(self, describes_before_applied: int) -> None:
        self.metadata = SimpleNamespace(brokers={1: None})
        self.describes_left = describes_before_applied
        self.settings: dict[str, str | None] = {}

    def attempts(self, what: str, timeout_s: float) -> Attempts:
        return Attempts(what, timeout_s, SeededRandomness(1))

    async def ask_broker(self, _: int, request: Request, __: type[Response]) -> Response:
        if isinstance(request, IncrementalAlterConfigsRequest):
            return IncrementalAlterConfigsResponse(responses=[])
        self.describes_left -= 1
        shown = self.settings if self.describes_left < 0 else dict.fromkeys(self.settings, "")
        configs = [DescribeConfigsResourceResult(name=name, value=value) for name, value in shown.items()]
        return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_name="orders", configs=configs)])

    async def refresh(self) -> None:
        pass

    async def ask_any(self, request: IncrementalAlterConfigsRequest, _: type[Response]) -> Response:
        self.settings = {each.name: each.value for each in request.resources[0].configs}
        return IncrementalAlterConfigsResponse(responses=[])


def test_throttle_is_set_when_the_brokers_apply_it() -> None:
    async def scenario() -> None:
        moves = {ORDERS: ThrottledMove(sources=(1,), added=(2,))}
        broker = LateBroker(describes_before_applied=3)
        await ThrottleAdmin(cast("Cluster", broker)).set(MB, moves)
        assert broker.describes_left == -1
        with pytest.raises(GaveUp, match="broker 1 does not apply the throttle after 2 s"):
            await ThrottleAdmin(cast("Cluster", LateBroker(1000)), timeout_s=2.0).set(MB, moves)

    run_virtually(scenario())
