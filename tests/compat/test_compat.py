"""The parts of the compatibility run that decide something: what counts as a complaint, and what the table says."""

import sys
from pathlib import Path
from typing import Any, cast

import pytest

from compat import (
    command_line,
    group_tools,
    matrix,
    same_zookeeper,
    streams,
    written_by_kafka,
    written_by_tidelog,
)
from compat.matrix import Outcome
from compat.remote import ProgramFailed, RemoteDriver, outcome_of
from tests.clients.broker import TidelogCluster
from tests.clients.driver import ProducerOptions, Record, Rejected

FINE = """\
Dumping /data/t-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 1 count: 2 isTransactional: false position: 0 size: 90 magic: 2 crc: 1 isvalid: true
| offset: 0 CreateTime: 1 keySize: 1 valueSize: 9 sequence: -1 headerKeys: [] key: error payload: exception
/data/t-0/00000000000000000000.index passed sanity check.
"""


def test_a_sound_log_gives_no_complaint_whatever_its_records_say() -> None:
    assert written_by_tidelog.complaints(FINE) == []


@pytest.mark.parametrize(
    "line",
    [
        "baseOffset: 0 lastOffset: 1 count: 2 magic: 2 crc: 1 isvalid: false",
        "Mismatches in :/data/t-0/00000000000000000000.index",
        "Found timestamp mismatch in :/data/t-0/00000000000000000000.timeindex",
        "Found out of order timestamp in :/data/t-0/00000000000000000000.timeindex",
        "Found 17 invalid bytes at the end of 00000000000000000000.log",
        'Exception in thread "main" java.lang.IllegalArgumentException',
    ],
)
def test_what_the_tool_finds_is_a_complaint(line: str) -> None:
    assert written_by_tidelog.complaints(FINE + line) == [line]


def test_only_a_compacted_log_may_have_gaps() -> None:
    gaps = "Non-consecutive offsets in :/data/t-0/00000000000000000000.log\n  4 is followed by 9\n"
    assert len(written_by_tidelog.complaints(gaps)) == 2
    assert written_by_tidelog.complaints(gaps, may_have_gaps=True) == []


def test_one_replica_of_every_partition_is_looked_at(tmp_path: Path) -> None:
    log_dirs = [tmp_path / "one", tmp_path / "two"]
    for log_dir, names in zip(log_dirs, (("a-0", "b-0"), ("a-0", "b-0", "c-0")), strict=True):
        for name in names:
            (log_dir / name).mkdir(parents=True)
            (log_dir / name / "0.log").write_text(log_dir.name)
    written_by_tidelog.link_one_replica_of_each(log_dirs, tmp_path / "logs")
    found = {path.parent.name: path.read_text() for path in written_by_tidelog.files(tmp_path / "logs", ".log")}
    assert found == {"a-0": "one", "b-0": "two", "c-0": "two"}


def test_a_lost_and_a_changed_record_are_differences() -> None:
    place = ("t", 0, "read_committed")
    written: list[written_by_kafka.Fields] = [(0, 5, b"k", b"v", ()), (1, 5, None, b"w", ())]
    assert written_by_kafka.differences({place: written}, {place: list(written)}) == []
    assert "2 records written, 1 read" in written_by_kafka.differences({place: written}, {place: written[:1]})[0]
    changed = [written[0], (1, 6, None, b"w", ())]
    assert "first difference at offset 1" in written_by_kafka.differences({place: written}, {place: changed})[0]


def test_the_table_has_features_down_and_clients_across() -> None:
    outcomes = [
        Outcome("one", "fly", "works"),
        Outcome("one", "swim", "fails", "it sank"),
        Outcome("two", "fly", "not offered", "no wings"),
        Outcome("two", "swim", "not run", "not here"),
    ]
    assert matrix.table(outcomes).splitlines()[2:] == ["| fly | yes | - |", "| swim | **NO** | ? |"]
    assert matrix.remarks(outcomes) == "- one, swim: fails: it sank\n- two, swim: not run: not here\n"
    assert matrix.has_failed(outcomes)
    assert not matrix.has_failed(outcomes[2:])


def test_an_answer_is_a_result_a_refusal_or_a_fault() -> None:
    assert outcome_of({"result": [1]}) == [1]
    with pytest.raises(Rejected, match="error 36: there"):
        outcome_of({"code": 36, "message": "there"})
    with pytest.raises(ProgramFailed, match="out of memory"):
        outcome_of({"fault": "out of memory"})


ECHO = """
import json, sys
for line in sys.stdin:
    command = json.loads(line)
    if command["do"] == "list_topics":
        sys.exit("gone")
    print(json.dumps({"result": [len(command["records"]), command["acks"]]}), flush=True)
"""


def test_a_program_that_ends_is_reported_and_started_again() -> None:
    driver = RemoteDriver("127.0.0.1:1", [sys.executable, "-c", ECHO])
    try:
        with pytest.raises(ProgramFailed, match="gone"):
            driver.list_topics()
        assert driver.produce("t", [Record(b"v")], ProducerOptions(acks="1")) == [1, "1"]
    finally:
        driver.close()


DESCRIBED = """\
Topic: orders	TopicId: ibNVuHo_QACLvAvjS7dj7w	PartitionCount: 2	ReplicationFactor: 3	Configs: 
	Topic: orders	Partition: 0	Leader: 3	Replicas: 3,2,1	Isr: 3,1	Elr: 	LastKnownElr: 
	Topic: orders	Partition: 1	Leader: -1	Replicas: 1,3	Isr: 1	Elr: 	LastKnownElr: 
"""  # noqa: W291 - as the tool prints it


def test_a_topic_described_by_the_tool_is_read() -> None:
    assert command_line.described(DESCRIBED) == {0: (3, [3, 2, 1], [3, 1]), 1: (-1, [1, 3], [1])}


@pytest.mark.parametrize(
    "printed",
    [
        "2               (0,13)",
        "2               orders:0,13",
        "2               4               orders:0,13     5               orders:7",
    ],
)
def test_partitions_of_a_member_are_read_as_each_version_prints_them(printed: str) -> None:
    assert group_tools.partitions_of_member(f"group-of-orders rdkafka-1 /127.0.0.1 rdkafka {printed}", "orders") == [
        0,
        13,
    ]


def test_a_member_without_partitions_has_none() -> None:
    assert group_tools.partitions_of_member("group-of-orders rdkafka-1 /127.0.0.1 rdkafka 0 -", "orders") == []


def test_whatever_goes_wrong_with_a_tool_is_its_fault() -> None:
    def reject(box: command_line.ToolBox, cluster: TidelogCluster) -> None:
        raise Rejected(16, "not the coordinator")

    fault = command_line.fault_of(command_line.Tool("it", reject), cast("Any", None), cast("Any", None))
    assert fault == "Rejected: error 16: not the coordinator"


def test_a_version_without_the_tool_is_no_failure() -> None:
    name = "kafka-cluster list-endpoints, --include-fenced-brokers"
    assert f"| {name} | - | **NO** |" in command_line.table({(name, command_line.VERSIONS[1]): "it failed"})
    assert f"| {name} | - | yes |" in command_line.table({(name, command_line.VERSIONS[1]): ""})


def test_nodes_with_other_fields_are_found() -> None:
    state = same_zookeeper.kind_of("/brokers/topics/orders/partitions/17/state")
    kafkas = {state: frozenset(same_zookeeper.fields_of(b'{"leader": 1, "isr": [1]}'))}
    assert same_zookeeper.differing_shapes(kafkas, kafkas) == []
    ours = {state: frozenset(same_zookeeper.fields_of(b'{"leader": "1", "isr": [1]}'))}
    assert len(same_zookeeper.differing_shapes(kafkas, ours)) == 1


def test_a_word_that_is_counted_twice_or_not_at_all_is_a_complaint() -> None:
    assert streams.wrong_counts({"once": [1, 2, 3], "none": []}) == []
    assert streams.wrong_counts({"twice": [1, 2, 2, 3]}) == ["twice: 2 is followed by 2"]
    assert streams.wrong_counts({"late": [2], "lost": [1, 3]}) == [
        "late: the start is followed by 2",
        "lost: 1 is followed by 3",
    ]
