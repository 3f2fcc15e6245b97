"""The report of `tidelog status`: what is wrong comes first, in few words, with the health as exit code."""

from tidelog.cli.local_cluster.report import Health, as_text, health_of, problem_lines
from tidelog.cli.local_cluster.screen import picture
from tidelog.cli.local_cluster.status_command import held
from tidelog.cli.local_cluster.view import BrokerState, BrokerView, ClusterView, OutOfSync, PartitionView
from tidelog.terminal.colours import paint_for, painted, plain
from tidelog.types import TopicPartition


def brokers(*down: int) -> list[BrokerView]:
    states = [BrokerState.DOWN if each in down else BrokerState.UP for each in (1, 2, 3)]
    return [BrokerView(each, "h", 9000 + each, each, state) for each, state in zip((1, 2, 3), states, strict=True)]


def partition(
    topic: str, index: int, leader: int | None = 1, in_sync: tuple[int, ...] = (1, 2, 3), minimum: int = 2
) -> PartitionView:
    missing = [OutOfSync(each, "slow", "wait") for each in (1, 2, 3) if each not in in_sync]
    return PartitionView(
        TopicPartition(topic, index), leader, 1, (1, 2, 3), in_sync, 5, {}, missing, min_in_sync=minimum
    )


def cluster(*partitions: PartitionView, down: tuple[int, ...] = (), controller: int | None = 1) -> ClusterView:
    return ClusterView("id", controller, brokers(*down), partitions, 0)


def test_health_is_the_exit_code() -> None:
    assert int(health_of(cluster(partition("t", 0)))) == 0
    assert int(health_of(cluster(partition("t", 0, in_sync=(1, 2))))) == 1
    assert health_of(cluster(partition("t", 0), down=(3,))) == Health.DEGRADED
    assert int(health_of(cluster(partition("t", 0, in_sync=(1,))))) == 2
    assert health_of(cluster(partition("t", 0, leader=None))) == Health.NOT_WRITABLE
    assert health_of(ClusterView(None, None, brokers(1, 2, 3), [], 0)) == Health.NOT_WRITABLE


def test_leaderless_partitions_come_first_with_their_reason() -> None:
    view = cluster(
        *(partition("big", index, in_sync=(1, 3)) for index in range(300)),
        partition("lost", 7, leader=None, in_sync=(2,)),
        *(partition("__consumer_offsets", index, in_sync=(1, 3)) for index in range(50)),
        down=(2,),
    )
    assert problem_lines(view, lambda broker: f"Start it: `tidelog start {broker}`") == [
        "lost-7 has no leader: broker 2 is down.",
        "Broker 2 is down: 1 partition without a leader, 350 replicas missing. Start it: `tidelog start 2`",
        "__consumer_offsets: 50 of 50 partitions under-replicated.",
    ]
    shown = as_text(view)
    assert shown[0].startswith("not writable: 3 topics, 351 partitions: 1 without a leader")
    assert len(shown) < 50
    table = shown[shown.index("") :]
    assert next(line for line in table if line.startswith(("big", "lost"))).startswith("lost-7")
    assert any(line.startswith("lost-7") for line in picture(view, columns=100, rows=24))
    assert shown[-1] == "... and 271 partitions more; --all lists them"
    assert len(as_text(view, limit=None)) > 351


def test_reason_of_a_replica_is_reported_unless_its_broker_is_down() -> None:
    assert not any("slow" in line for line in as_text(cluster(partition("t", 0, in_sync=(1, 2)), down=(3,))))
    assert any("slow" in line for line in as_text(cluster(partition("t", 0, in_sync=(1, 2)))))


def test_leader_that_has_just_died_is_not_called_a_leader() -> None:
    silent = partition("t", 0)._replace(is_leader_silent=True)
    assert health_of(cluster(silent)) == Health.NOT_WRITABLE
    assert problem_lines(cluster(silent)) == ["t-0 has no leader: its leader, broker 1, does not answer."]


def test_refused_writes_are_reported() -> None:
    assert problem_lines(cluster(partition("t", 0, in_sync=(1,)))) == ["t-0 refuses acks=all: fewer than 2 in sync."]


def test_screen_is_never_blank_at_a_failover() -> None:
    good, nothing = cluster(partition("t", 0)), ClusterView(None, None, brokers(1), [], 9)
    assert held(None, nothing) is nothing
    assert held(good, nothing).partitions == good.partitions
    assert held(good, nothing).brokers == nothing.brokers
    assert held(nothing, good) is good


class Terminal:
    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_colours_are_for_terminals_that_want_them() -> None:
    terminal, file = Terminal(is_terminal=True), Terminal(is_terminal=False)
    assert paint_for(terminal, {"TERM": "xterm"}) is painted  # type: ignore[arg-type]
    assert paint_for(terminal, {"TERM": "xterm", "NO_COLOR": "1"}) is plain  # type: ignore[arg-type]
    assert paint_for(terminal, {"TERM": "dumb"}) is plain  # type: ignore[arg-type]
    assert paint_for(file, {"TERM": "xterm"}) is plain  # type: ignore[arg-type]
    assert painted("not writable: x") == "\x1b[1m\x1b[31mnot writable\x1b[0m: x"
    assert painted("orders-0 is fine") == "orders-0 is fine"
