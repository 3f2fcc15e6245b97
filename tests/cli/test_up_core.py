"""The deciding parts of the local cluster: plan, picture, changes, order of stopping, pauses before restarts."""

import io
import json
from itertools import pairwise
from pathlib import Path

import pytest

from tidelog.cli.command_error import CommandError
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.plan import (
    Plan,
    PlanOptions,
    default_settings,
    parse_plan,
    plan_text,
    properties_text,
    resolve_plan,
)
from tidelog.cli.local_cluster.report import as_text
from tidelog.cli.local_cluster.screen import PlainScreen, TerminalScreen, picture
from tidelog.cli.local_cluster.starting import exit_reason
from tidelog.cli.local_cluster.stopping import stop_order
from tidelog.cli.local_cluster.supervisor import FIRST_PAUSE_S, MAX_PAUSE_S, STEADY_S, RestartPause
from tidelog.cli.local_cluster.view import (
    BrokerState,
    BrokerView,
    ClusterView,
    Move,
    OutOfSync,
    PartitionView,
    as_json,
    changes,
)
from tidelog.config.properties import parse_properties
from tidelog.runtime.process_identity import ProcessIdentity
from tidelog.types import TopicPartition


def test_plan_without_wishes_is_three_brokers_and_then_what_the_data_has() -> None:
    first = resolve_plan(PlanOptions(), None, "data")
    assert first == Plan(3, 29092, None)
    assert first.bootstrap == "127.0.0.1:29092,127.0.0.1:29093,127.0.0.1:29094"
    kept = Plan(2, 31000, "zoo:2181/tides")
    assert resolve_plan(PlanOptions(), kept, "data") == kept
    assert resolve_plan(PlanOptions(port=32000), kept, "data") == Plan(2, 32000, "zoo:2181/tides")
    assert parse_plan(plan_text(kept), "cluster.json") == kept


def test_the_format_of_logs_is_kept_and_may_change() -> None:
    first = resolve_plan(PlanOptions(brokers=1, log_format="json"), None, "data")
    kept = parse_plan(plan_text(first), "cluster.json")
    assert kept.log_format == "json"
    assert resolve_plan(PlanOptions(), kept, "data").log_format == "json"
    assert resolve_plan(PlanOptions(log_format="text"), kept, "data").log_format == "text"
    before_it_was_there = plan_text(kept).replace('"log_format"', '"something"')
    assert parse_plan(before_it_was_there, "cluster.json").log_format == "text"


@pytest.mark.parametrize(
    "requested",
    [PlanOptions(brokers=3), PlanOptions(zookeeper="other:2181"), PlanOptions(port=0), PlanOptions(port=65_535)],
)
def test_plan_that_cannot_be_is_refused(requested: PlanOptions) -> None:
    with pytest.raises(CommandError):
        resolve_plan(requested, Plan(2, 31000, "zoo:2181/tides"), "data")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 1, "brokers": "many", "port": 1, "zookeeper": null}'])
def test_damaged_plan_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match=r"cluster\.json is not valid"):
        parse_plan(text, "cluster.json")


def test_topics_survive_the_loss_of_a_broker_where_there_are_three() -> None:
    for brokers, replicas, in_sync_replicas in ((1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")):
        assert default_settings(brokers) == {
            "default.replication.factor": replicas,
            "group.initial.rebalance.delay.ms": "0",
            "min.insync.replicas": in_sync_replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync_replicas,
            "transaction.state.log.replication.factor": replicas,
        }


def test_settings_read_back_as_they_were_written() -> None:
    settings = {"a": "C:\\path", "b": "  two\nlines\t", "c": "", "d": "x=y:z #!", "e": "grüße"}
    assert {found.key: found.value for found in parse_properties(properties_text(settings))} == settings


def broker_process(broker_id: int) -> BrokerProcess:
    return BrokerProcess(broker_id, ProcessIdentity(100 + broker_id, "boot 1"), "127.0.0.1", 9092, [])


def test_controller_is_stopped_last() -> None:
    processes = [broker_process(number) for number in (1, 2, 3)]
    groups = [[process.broker_id for process in group] for group in stop_order(processes, controller=2)]
    assert groups == [[1, 3], [2]]
    assert stop_order(processes, controller=None) == [processes]
    assert stop_order([], controller=1) == []


def test_broker_that_keeps_dying_is_started_after_longer_and_longer_pauses() -> None:
    pause = RestartPause()
    now = 100.0
    starts: list[float] = []
    while len(starts) < 10:
        if pause.is_due(now):
            starts.append(now)
            pause.on_started(now)
        now += 0.25
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert starts[0] == 100.0
    assert gaps[0] >= FIRST_PAUSE_S
    assert gaps == sorted(gaps)
    assert MAX_PAUSE_S <= gaps[-1] <= MAX_PAUSE_S + 0.5
    assert pause.is_due(now + STEADY_S), "after a long life the next start is quick again"


# -- what is shown

UP = [BrokerView(number, "127.0.0.1", 29091 + number, 100 + number, BrokerState.UP) for number in (1, 2, 3)]
NOW_MS = 1_800_000_000_000


def partition(index: int, leader: int | None = 1, in_sync: tuple[int, ...] = (1, 2, 3), lag: int = 0) -> PartitionView:
    missing = [
        OutOfSync(replica, "silent for too long", "rejoins at offset 9", 2, NOW_MS - 31_500)
        for replica in (1, 2, 3)
        if replica not in in_sync
    ]
    return PartitionView(
        TopicPartition("tides", index), leader, 4, (1, 2, 3), in_sync, 7, {1: 0, 2: lag, 3: None}, missing
    )


def cluster_of(*partitions: PartitionView, brokers: list[BrokerView] = UP, controller: int | None = 2) -> ClusterView:
    return ClusterView("TidesAAAAAAAAAAAAAAAAA", controller, brokers, partitions, NOW_MS)


def test_text_shows_brokers_partitions_and_the_reason_of_each_missing_replica() -> None:
    shown = as_text(cluster_of(partition(0), partition(1, in_sync=(1, 2), lag=5)), limit=None)
    assert shown[:2] == ["degraded: 1 topic, 2 partitions: 1 under-replicated", ""]
    assert [line.split() for line in shown[2:6]] == [
        ["BROKER", "STATE", "ADDRESS", "PID", "LEADS"],
        ["1", "up", "127.0.0.1:29092", "101", "2"],
        ["2", "up", "127.0.0.1:29093", "102", "0", "controller"],
        ["3", "up", "127.0.0.1:29094", "103", "0"],
    ]
    assert shown[8].split() == ["tides-0", "1", "4", "1,2,3", "1,2,3", "7", "3:?"]
    assert shown[9].split() == ["tides-1", "1", "4", "1,2,3", "1,2", "7", "2:5", "3:?"]
    assert shown[10].strip() == ("replica 3 out of sync for 31 s, 2 behind: silent for too long; rejoins at offset 9")


def test_text_shows_moves_and_leaders_that_are_not_preferred() -> None:
    moving = partition(0, in_sync=(1, 2))._replace(out_of_sync=[], move=Move((3,), (2,), 40))
    shown = as_text(cluster_of(moving, partition(1, leader=2)))
    verdict = "healthy: 1 topic, 2 partitions: all in sync; 1 being moved; 1 not led by the preferred replica"
    assert shown[0] == verdict
    assert shown[9].strip() == "being moved: adds 3 (40 % copied), removes 2"
    assert as_json(cluster_of(moving))["preferred_replica_imbalance"] == 0


def test_text_of_a_cluster_that_does_not_answer() -> None:
    down = [broker._replace(pid=None, state=BrokerState.DOWN) for broker in UP]
    assert as_text(ClusterView(None, None, down, [], NOW_MS))[0] == "not writable: no broker answers"
    assert as_text(cluster_of())[0] == "healthy: no topics yet"


def test_text_says_why_brokers_are_suspended_and_which_logs_were_set_aside() -> None:
    brokers = [broker._replace(state=BrokerState.SUSPENDED) for broker in UP]
    view = cluster_of(partition(0, leader=None), brokers=brokers, controller=None)._replace(
        suspensions=dict.fromkeys((1, 2, 3), "the coordination store cannot be reached"),
        stray_logs={2: ["/data/tides-0.AAA-stray"]},
    )
    shown = as_text(view)
    start = shown.index("brokers 1,2,3 suspended: the coordination store cannot be reached")
    assert [line.split()[:5] for line in shown[start - 3 : start]] == [
        [str(number), "suspended", f"127.0.0.1:{29091 + number}", str(100 + number), "-"] for number in (1, 2, 3)
    ]
    assert shown[start + 1].startswith("1 stray log: the topic was deleted and created again under the same name.")
    assert shown[start + 2] == "    broker 2: /data/tides-0.AAA-stray"
    assert shown[0] == "not writable: 1 topic, 1 partition: 1 without a leader"
    assert shown[1] == "tides-0 has no leader: brokers 1, 2, 3 are suspended."
    assert max(map(len, picture(view, columns=60, rows=24))) <= 80
    first, second, _ = json.loads(json.dumps(as_json(view)))["brokers"]
    assert (first["state"], first["suspension"]) == ("suspended", "the coordination store cannot be reached")
    assert second["stray_logs"] == ["/data/tides-0.AAA-stray"]


def test_text_says_which_log_directory_is_offline_and_why() -> None:
    view = cluster_of(partition(0))._replace(offline_directories={2: {"/data/two": "[Errno 5] Input/output error"}})
    assert as_text(view)[6] == (
        "broker 2: log directory /data/two is offline: [Errno 5] Input/output error."
        " Repair the disk, then restart broker 2"
    )
    _, second, _ = json.loads(json.dumps(as_json(view)))["brokers"]
    assert second["offline_log_dirs"] == {"/data/two": "[Errno 5] Input/output error"}


def test_a_full_disk_needs_room_and_no_repair() -> None:
    for reason in ("[Errno 28] No space left on device: '/data/two/x'", "[Errno 122] Disk quota exceeded"):
        view = cluster_of(partition(0))._replace(offline_directories={2: {"/data/two": reason}})
        assert as_text(view)[6].endswith("Make room on the disk, then restart broker 2")


def test_json_has_lag_and_reason_of_each_replica() -> None:
    text = json.dumps(as_json(cluster_of(partition(1, in_sync=(1, 2), lag=5))))
    (found,) = json.loads(text)["partitions"]
    assert found["lag"] == {"1": 0, "2": 5, "3": None}
    (missing,) = found["out_of_sync"]
    assert (missing["replica"], missing["behind"], missing["since_ms"]) == (3, 2, NOW_MS - 31_500)
    assert missing["reason"].startswith("replica 3 out of sync for 31 s")


def test_changes_name_brokers_controller_leaders_and_in_sync_replicas() -> None:
    before = cluster_of(partition(0), partition(1))
    brokers = [UP[0]._replace(state=BrokerState.DOWN, pid=None), *UP[1:]]
    after = cluster_of(partition(0, leader=2, in_sync=(2, 3)), partition(1), brokers=brokers, controller=3)
    assert changes(None, before) == []
    assert changes(before, before) == []
    assert changes(before, after) == [
        "broker 1 is down",
        "controller: 2 -> 3",
        "tides-0: leader 1 -> 2, epoch 4",
        "tides-0: in sync 1,2,3 -> 2,3",
    ]


def test_picture_fits_and_shows_trouble_first() -> None:
    partitions = [partition(index) for index in range(100)]
    partitions[90] = partition(90, leader=None, in_sync=())
    shown = picture(cluster_of(*partitions), columns=60, rows=24)
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    assert sum(line.startswith("      ") for line in shown) == 3, "a reason that is too long goes on in the next line"
    assert any(line.startswith("tides-90 ") for line in shown)
    assert shown[-1].startswith("... and ")


def test_terminal_is_drawn_over_and_a_line_that_is_said_stays_above() -> None:
    output = io.StringIO()
    screen = TerminalScreen(output, "footer")
    screen.show(cluster_of(partition(0)))
    drawn = output.getvalue().count("\n")
    screen.say("broker 1 died")
    assert output.getvalue().endswith(f"\x1b[{drawn}A\r\x1b[Jbroker 1 died\n")
    screen.show(cluster_of(partition(0)))
    assert output.getvalue().count(f"\x1b[{drawn}A") == 1


class GoneTerminal(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


def test_terminal_that_is_gone_does_not_end_the_watch() -> None:
    TerminalScreen(GoneTerminal(), "footer").show(cluster_of(partition(0)))
    PlainScreen(GoneTerminal()).say("stopping the brokers")


def test_the_reason_of_an_end_is_a_sentence_in_both_formats_of_logs(tmp_path: Path) -> None:
    data = DataDirectory(str(tmp_path))
    event = '{"time": "t", "level": "ERROR", "message": "broker failed", "fields": {"reason": "disk full"}}'
    for line, shown in (("tidelog broker: no such file\n", "no such file"), (event, "broker failed reason=disk full")):
        data.log_file(1).write_text(line)
        assert exit_reason(data, 1) == shown
