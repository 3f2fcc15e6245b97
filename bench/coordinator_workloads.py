"""The workloads of groups and transactions: each drives running brokers and returns figures by measure."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import ClassVar

from bench import group_load, group_wire, probes, transaction_load
from bench.clusters import THREE_BROKERS, Cluster, KafkaCluster
from bench.coordinator_measures import HEARTBEAT_EVERY_S, TRANSACTION_VERSIONS
from bench.exchange import Exchange, ask_pipelined
from bench.figures import percentile
from bench.group_load import ClassicGroups, ConsumerGroups, FirstMessage, ask_patiently, check_all
from bench.local_cluster import TidelogUp
from bench.measures import Sizes
from bench.peers import ONE_BROKER, START_LIMIT_S, BrokerFailed, Peer, Peers
from bench.processes import CpuMeter, resident_megabytes
from bench.scenarios import Figures, Scenario, Session, Step
from bench.wire import Connection

WINDOW = 100
TOPIC_PARTITIONS = 100
MICROSECONDS = 1_000_000
TRANSACTION_PARTITIONS = 3


# -- groups on one broker


def classic_groups(session: Session) -> Figures:
    sizes = session.sizes
    topic = session.new_topic(TOPIC_PARTITIONS)
    group_load.find_coordinator(session.peer.ports, group_load.name_of(0))
    connections = group_load.connections_for(sizes.groups, sizes.members_per_group)
    with Exchange(session.peer.ports * connections) as exchange:
        memory_before = resident_megabytes(session.peer.pids)
        groups = ClassicGroups(exchange, topic, sizes.members_per_group)
        with CpuMeter(session.peer.pids) as joining:
            groups.join(sizes.groups)
        members = sizes.groups * sizes.members_per_group
        commits = groups.spread(lambda group, index: groups.commit_frame(group, index, 1, 10), members)
        offsets, _ = _driven(session, exchange, commits, group_wire.offset_commit_error)
        memory = resident_megabytes(session.peer.pids)
        return {
            "groups-join-cpu": MICROSECONDS * joining.seconds / members,
            "groups-commit-10-cpu": offsets,
            "groups-memory": memory,
            "groups-memory-growth": memory - memory_before,
            **_heartbeats(session, exchange, groups),
            **_commits(session, exchange, groups),
            **_pipelined_commits(session, groups),
        }


def _heartbeats(session: Session, exchange: Exchange, groups: ClassicGroups) -> dict[str, float]:
    error_of = group_wire.error_after_throttle_time
    requests = groups.spread(groups.heartbeat_frame, session.sizes.group_requests)
    _driven(session, exchange, requests, error_of)
    cpu_each, rate = _driven(session, exchange, requests, error_of)
    members = session.sizes.groups * session.sizes.members_per_group
    with CpuMeter(session.peer.pids) as cpu:
        exchange.ask_all(
            groups.spread(groups.heartbeat_frame, session.sizes.steady_heartbeat_rounds * members),
            rate_per_second=members / HEARTBEAT_EVERY_S,
        )
    return {
        "groups-steady-cpu": 100 * cpu.seconds / cpu.elapsed_seconds,
        "groups-heartbeat-cpu": cpu_each,
        "groups-heartbeat-rate": rate,
    }


def _commits(session: Session, exchange: Exchange, groups: ClassicGroups) -> dict[str, float]:
    requests = groups.spread(
        lambda group, index: groups.commit_frame(group, index, 2, 1), session.sizes.group_requests // 2
    )
    _driven(session, exchange, requests, group_wire.offset_commit_error)
    cpu_each, rate = _driven(session, exchange, requests, group_wire.offset_commit_error)
    return {"groups-commit-cpu": cpu_each, "groups-commit-rate": rate}


def _pipelined_commits(session: Session, groups: ClassicGroups) -> dict[str, float]:
    spread = groups.spread(
        lambda group, index: groups.commit_frame(group, index, 3, 1), session.sizes.group_requests // 4
    )
    requests = [request for asked in spread for request in asked]
    with Connection(session.peer.ports[0]) as connection:
        ask_pipelined(connection, requests, WINDOW)
        with CpuMeter(session.peer.pids) as cpu:
            responses = ask_pipelined(connection, requests, WINDOW)
    check_all("commits", map(group_wire.offset_commit_error, responses))
    return {
        "groups-commit-pipelined-cpu": MICROSECONDS * cpu.seconds / len(requests),
        "groups-commit-pipelined-rate": len(requests) / cpu.elapsed_seconds,
    }


def _driven(
    session: Session, exchange: Exchange, requests: list[list[bytes]], error_of: Callable[[bytes], int]
) -> tuple[float, float]:
    """Microseconds of the broker's CPU for each request, and requests per second."""
    with CpuMeter(session.peer.pids) as cpu:
        responses = ask_patiently(exchange, requests, error_of, WINDOW)
    check_all("requests", (error_of(response) for answered in responses for response in answered))
    count = sum(map(len, requests))
    return MICROSECONDS * cpu.seconds / count, count / cpu.elapsed_seconds


def consumer_groups(session: Session) -> Figures:
    """The topic comes after the members: these are given partitions, and need not first give up any."""
    sizes = session.sizes
    topic = "bench-consumer-groups"
    connections = group_load.connections_for(sizes.groups, sizes.members_per_group)
    group_load.find_coordinator(session.peer.ports, group_load.name_of(0))
    with Exchange(session.peer.ports * connections) as exchange:
        groups = ConsumerGroups(exchange, connections, topic, sizes.members_per_group, sizes.groups)
        with CpuMeter(session.peer.pids) as joining:
            groups.join()
            probes.create_topic(session.peer.ports, topic, TOPIC_PARTITIONS)
            groups.settle()
        requests = groups.spread(groups.heartbeat_frames(sizes.group_requests))
        cpu_each, rate = _driven(session, exchange, requests, lambda response: group_wire.member_of(response).error)
        return {
            "consumer-groups-join-cpu": MICROSECONDS * joining.seconds / (sizes.groups * sizes.members_per_group),
            "consumer-groups-heartbeat-cpu": cpu_each,
            "consumer-groups-heartbeat-rate": rate,
        }


def restart(session: Session) -> Figures:
    session.peer.stop()
    started = time.monotonic()
    session.peer.launch()
    groups = group_load.group_of_each_partition(session.sizes.groups)
    group_load.wait_until_loaded(session.peer.ports, groups, session.sizes.offsets_per_group)
    return {"groups-start": time.monotonic() - started}


# -- groups on three brokers


def group_failover(session: Session) -> Figures:
    cluster, sizes = session.peer, session.sizes
    assert isinstance(cluster, Cluster)
    topic = session.new_topic(sizes.offsets_per_group)
    group_load.commit_without_members(cluster.ports, sizes.groups, topic, sizes.offsets_per_group)
    seconds = []
    for _ in range(sizes.group_failovers):
        probes.wait_until_in_sync(cluster.ports, "__consumer_offsets", time.monotonic() + START_LIMIT_S)
        seconds.append(_kill_a_coordinator(cluster, sizes))
    return {"groups-failover": seconds}


def _kill_a_coordinator(cluster: Cluster, sizes: Sizes) -> float:
    groups = group_load.group_of_each_partition(sizes.groups)
    coordinators = {group: group_load.find_coordinator(cluster.ports, group_load.name_of(group)) for group in groups}
    victim = next(member for member in cluster.members.values() if coordinators[groups[0]] in member.ports)
    survivors = [port for port in cluster.ports if port not in victim.ports]
    orphans = [group for group, port in coordinators.items() if port in victim.ports]
    killed = time.monotonic()
    victim.kill()
    group_load.wait_until_loaded(survivors, orphans, sizes.offsets_per_group)
    seconds = time.monotonic() - killed
    victim.launch()
    return seconds


# -- transactions on three brokers


def transactions(version: int) -> Callable[[Session], Figures]:
    def work(session: Session) -> Figures:
        sizes, identity = session.sizes, f"transactions-{version}"
        topic = session.new_topic(TRANSACTION_PARTITIONS)
        with ExitStack() as stack:
            producers = [
                stack.enter_context(
                    transaction_load.Producer(
                        session.peer.ports, topic, TRANSACTION_PARTITIONS, f"{identity}-{number}", version
                    )
                )
                for number in range(sizes.transactional_producers)
            ]
            transaction_load.commit_at_once(producers, max(1, sizes.transactions // len(producers) // 2))
            values = transaction_load.latencies_ms(producers[0], sizes.transactions)
            each = sizes.transactions // len(producers)
            with CpuMeter(session.peer.pids) as cpu:
                seconds = transaction_load.commit_at_once(producers, each)
        count = each * len(producers)
        return {
            f"{identity}-p50": percentile(values, 50),
            f"{identity}-p99": percentile(values, 99),
            f"{identity}-rate": count / seconds,
            f"{identity}-cpu": 1000 * cpu.seconds / count,
        }

    return work


# -- the first message


class StartWithGroup(Peer):
    """Its start ends with a record that a member of a group has read."""

    first_message: FirstMessage
    """In seconds since the exec."""

    def start(self) -> float:
        self.prepare()
        started = time.monotonic()
        self.launch()
        try:
            done = group_load.wait_for_first_message(self.ports, "first", started + START_LIMIT_S)
        except TimeoutError as error:
            self.kill()
            raise BrokerFailed(f"{self.title} did not start:\n{self.last_words()}") from error
        self.first_message = FirstMessage(*(at - started for at in done))
        return self.first_message.received


class TidelogUpWithGroup(StartWithGroup, TidelogUp):
    pass


class KafkaWithGroup(StartWithGroup, KafkaCluster):
    """Waits for no further members, as `tidelog up` does."""

    session_settings: ClassVar[Mapping[str, str]] = {"group.initial.rebalance.delay.ms": "0"}


WITH_GROUP: Peers = {TidelogUpWithGroup.name: TidelogUpWithGroup, KafkaWithGroup.name: KafkaWithGroup}


def first_message(session: Session) -> Figures:
    peer = session.peer
    assert isinstance(peer, StartWithGroup)
    return {
        "group-first-produce": peer.first_message.acknowledged,
        "group-first-coordinator": peer.first_message.coordinator_found,
        "group-first-join": peer.first_message.joined,
        "group-first-message": peer.first_message.received,
    }


def coordinator_scenarios(sizes: Sizes) -> list[Scenario]:
    on_one = (
        Step("classic groups", classic_groups),
        Step("consumer groups", consumer_groups),
        Step("start on groups", restart),
    )
    on_three = tuple(
        Step(f"transactions, {title}", transactions(version)) for version, title in TRANSACTION_VERSIONS.items()
    )
    kills = Step(f"kill a coordinator, {sizes.group_failovers} times", group_failover)
    return [
        Scenario("group-start", (Step("first message", first_message),), WITH_GROUP),
        Scenario("groups", on_one, ONE_BROKER),
        Scenario("transactions", on_three, THREE_BROKERS),
        Scenario("group-failover", (kills,), THREE_BROKERS),
    ]
