"""Brokers that came back since a partition's state was written, as a controller sees them (R41, R42)."""

from collections.abc import Mapping

import pytest

from tidelog.cluster.image import NO_INCARNATION, BrokerRegistration, PartitionRegistration, Topic
from tidelog.cluster.znodes import LogDirectoryEpochs
from tidelog.controller.context import ControllerContext, LogEndQuery, LogEndResponse, with_incarnations
from tidelog.controller.elections import NO_LOG, Health, LogEnd
from tidelog.controller.log_directories import LogDirectories
from tidelog.types import TopicPartition

ORDERS = TopicPartition("orders", 0)


def context_of(
    epoch: int = 30,
    previous: int = -1,
    directories: dict[str, int] | None = None,
    recorded: int | None = 20,
    response: LogEndResponse | None = None,
    configs: Mapping[str, str] | None = None,
    is_one_missing: bool = True,
) -> ControllerContext:
    """Broker 2 is in sync in incarnation `recorded`, and registered with `epoch`."""
    context = ControllerContext()
    context.brokers = {
        1: BrokerRegistration(1, (), epoch=10),
        2: BrokerRegistration(2, (), epoch=epoch, previous_epoch=previous),
    }
    present = {name: LogDirectoryEpochs(first, epoch) for name, first in (directories or {}).items()}
    context.directories = {2: LogDirectories(present, [LogDirectoryEpochs(0, 20)] if is_one_missing else [])}
    epochs = {1: 10} if recorded is None else {1: 10, 2: recorded}
    partition = PartitionRegistration(0, (1, 2, 3), -1, 7, (1, 2), in_sync_epochs=epochs)
    context.add_topic(Topic("orders", b"o" * 16, (partition,), configs or {}))
    if response is not None:
        context.responses[ORDERS] = {2: response}
    return context


def judged(health: Health) -> str:
    assert 1 not in health.restarted
    if 2 not in health.restarted:
        return "steady"
    found = [name for name in ("clean", "lost", "doubtful") if 2 in getattr(health, name)]
    return found[0] if found else "unclean"


ASKED = LogEndQuery(7, 30)
FULL = LogEnd(6, 100)


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (context_of(epoch=20), "steady"),
        (context_of(epoch=30, previous=20), "clean"),
        (context_of(epoch=30, previous=20, directories={"new": 30}), "clean"),
        (context_of(epoch=30, previous=19), "unclean"),
        (context_of(epoch=30), "unclean"),
        (context_of(epoch=30, directories={"old": 0}), "unclean"),
        (context_of(epoch=30, directories={"old": 20}), "unclean"),
        (context_of(epoch=30, directories={"new": 21}), "lost"),
        (context_of(epoch=30, directories={"old": 20, "added": 30}, is_one_missing=False), "unclean"),
        (context_of(epoch=30, directories={"old": 0, "new": 30}), "doubtful"),
        (
            context_of(epoch=30, directories={"old": 0, "new": 30}, response=LogEndResponse(ASKED, FULL, "old")),
            "unclean",
        ),
        (
            context_of(epoch=30, directories={"old": 0, "new": 30}, response=LogEndResponse(ASKED, NO_LOG, "new")),
            "lost",
        ),
        (context_of(epoch=30, directories={"old": 0, "new": 30}, response=LogEndResponse(ASKED, NO_LOG, None)), "lost"),
        (context_of(epoch=30, directories={"old": 0}, response=LogEndResponse(ASKED, NO_LOG, None)), "unclean"),
        (context_of(epoch=30, recorded=NO_INCARNATION), "lost"),
        (context_of(epoch=30, previous=NO_INCARNATION, recorded=NO_INCARNATION), "lost"),
        (context_of(recorded=None), "steady"),
    ],
)
def test_a_restart_is_judged_by_what_is_known_of_it(context: ControllerContext, expected: str) -> None:
    assert judged(context.health(ORDERS)) == expected


@pytest.mark.parametrize(("registered", "assumed"), [(20, 20), (25, 25), (30, 25), (None, 25)])
def test_where_no_incarnation_is_recorded_it_counts_who_registered_since(registered: int | None, assumed: int) -> None:
    """The state was written by transaction 25."""
    brokers = {} if registered is None else {2: BrokerRegistration(2, (), epoch=registered)}
    state = PartitionRegistration(0, (1, 2, 3), -1, 7, (1, 2), version=3, in_sync_epochs={1: 10})
    assert with_incarnations(state, 25, brokers).in_sync_epochs == {1: 10, 2: assumed}


@pytest.mark.parametrize("query", [LogEndQuery(6, 30), LogEndQuery(7, 29)])
def test_an_answer_of_another_time_or_incarnation_is_none(query: LogEndQuery) -> None:
    assert context_of(response=LogEndResponse(ASKED, FULL, None)).health(ORDERS).responses == {2: FULL}
    assert context_of(response=LogEndResponse(query, FULL, None)).health(ORDERS).responses == {}


def test_min_isr_is_the_topics_own_or_that_of_the_cluster() -> None:
    context = context_of()
    context.default_min_in_sync = 2
    assert context.health(ORDERS).min_in_sync == 2
    assert context_of(configs={"min.insync.replicas": "3"}).health(ORDERS).min_in_sync == 3
    context = context_of(configs={"min.insync.replicas": "nonsense"})
    assert context.health(ORDERS).min_in_sync == 1
