"""Inspection of a cluster: answers of its brokers combined with the state of their processes."""

import time
from collections.abc import Sequence

from tidelog.cli.local_cluster.broker_queries import BrokerQueries, ClusterResponses, query_cluster
from tidelog.cli.local_cluster.data_directory import BrokerProcess, DataDirectory
from tidelog.cli.local_cluster.plan import HOST, Plan
from tidelog.cli.local_cluster.view import BrokerState, BrokerView, ClusterView
from tidelog.client.network.bootstrap import Address
from tidelog.runtime.process_identity import is_stopped


async def inspect_local_cluster(queries: BrokerQueries, data: DataDirectory, plan: Plan) -> ClusterView:
    """All brokers of the plan, running or not."""
    running = data.running_brokers(plan)
    findings = await query_cluster(queries, [Address(broker.host, broker.port) for broker in running.values()])
    brokers = [_local_broker(broker_id, plan, running.get(broker_id), findings) for broker_id in plan.broker_ids]
    return _view(findings, brokers)


def _view(findings: ClusterResponses, brokers: Sequence[BrokerView]) -> ClusterView:
    return ClusterView(
        findings.cluster_id,
        findings.controller,
        brokers,
        findings.partitions,
        _now_ms(),
        findings.suspensions,
        findings.stray_logs,
        findings.offline_directories,
    )


def _local_broker(broker_id: int, plan: Plan, process: BrokerProcess | None, findings: ClusterResponses) -> BrokerView:
    if process is None:
        return BrokerView(broker_id, HOST, plan.port_of(broker_id), None, BrokerState.DOWN)
    state = _state(process, findings)
    return BrokerView(broker_id, process.host, process.port, process.identity.pid, state)


def _state(process: BrokerProcess, findings: ClusterResponses) -> BrokerState:
    if is_stopped(process.identity):
        return BrokerState.PAUSED
    if process.broker_id not in findings.members:
        return BrokerState.STARTING
    return _member_state(process.broker_id, Address(process.host, process.port), findings)


def _member_state(broker_id: int, address: Address, findings: ClusterResponses) -> BrokerState:
    if broker_id in findings.suspensions:
        return BrokerState.SUSPENDED
    return BrokerState.UP if address in findings.responses else BrokerState.SILENT


async def inspect_remote_cluster(queries: BrokerQueries, bootstrap: Sequence[Address]) -> ClusterView:
    """What the brokers report. A broker that hosts replicas and is not a live member counts as down."""
    findings = await query_cluster(queries, bootstrap)
    hosts = {replica for partition in findings.partitions for replica in partition.replicas}
    brokers = []
    for broker_id in sorted(hosts | findings.members.keys()):
        address = findings.members.get(broker_id)
        if address is None:
            brokers.append(BrokerView(broker_id, None, None, None, BrokerState.DOWN))
        else:
            brokers.append(BrokerView(broker_id, *address, None, _member_state(broker_id, address, findings)))
    return _view(findings, brokers)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
