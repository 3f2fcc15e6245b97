"""What a local cluster consists of: how many brokers, on which ports, with which settings. No I/O."""

import json
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.cli.command_error import Refused

DEFAULT_BROKERS = 3
DEFAULT_PORT = 29092
HOST = "127.0.0.1"
LAST_PORT = 65_535
MOST_BROKERS = 100
METRICS_PORTS_FROM = 100
"""Above the ports for clients."""
PLAN_VERSION = 1

RESERVED_SETTINGS = {
    "broker.id": "brokers are numbered from 1",
    "node.id": "brokers are numbered from 1",
    "listeners": "use --port",
    "advertised.listeners": "use --port",
    "log.dir": "use --data",
    "log.dirs": "use --data",
    "coordination.store": "use --data or --zookeeper",
    "metrics.listener": f"each broker shows its metrics {METRICS_PORTS_FROM} ports above its own",
    "zookeeper.connect": "use --zookeeper",
}
"""Settings that differ between the brokers or belong to the plan, and what to use instead."""


class Wish(NamedTuple):
    """What the flags asked for; None: whatever there is, or the default."""

    brokers: int | None = None
    port: int | None = None
    zookeeper: str | None = None


class Plan(NamedTuple):
    brokers: int
    port: int
    zookeeper: str | None

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)

    def port_of(self, broker_id: int) -> int:
        return self.port + broker_id - 1

    def metrics_port_of(self, broker_id: int) -> int:
        return self.port_of(broker_id) + METRICS_PORTS_FROM

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.port_of(broker_id)}" for broker_id in self.broker_ids)


def settle(wish: Wish, stored: Plan | None, data: str) -> Plan:
    """The plan to carry out; what was decided when the data was made stays, except the ports."""
    if stored is not None:
        _refuse_contradictions(wish, stored, data)
    brokers, port = (stored.brokers, stored.port) if stored else (DEFAULT_BROKERS, DEFAULT_PORT)
    brokers = brokers if wish.brokers is None else wish.brokers
    port = port if wish.port is None else wish.port
    plan = Plan(brokers, port, stored.zookeeper if stored else wish.zookeeper)
    if not 1 <= brokers <= MOST_BROKERS:
        raise Refused(f"--brokers {brokers}: from 1 to {MOST_BROKERS} brokers can run on one machine")
    if not (port > 0 and plan.port_of(brokers) <= LAST_PORT):
        raise Refused(
            f"--port {port}: the ports {port} to {plan.port_of(brokers)} are not all between 1 and {LAST_PORT}"
        )
    return plan


def _refuse_contradictions(wish: Wish, stored: Plan, data: str) -> None:
    if wish.brokers is not None and wish.brokers != stored.brokers:
        raise Refused(
            f"{data} holds a cluster of {_count(stored.brokers)}, and --brokers asks for {wish.brokers};"
            " leave --brokers out, or name another directory with --data"
        )
    if wish.zookeeper is not None and wish.zookeeper != stored.zookeeper:
        kept = f"in ZooKeeper at {stored.zookeeper}" if stored.zookeeper else f"in {data} itself"
        raise Refused(
            f"{data} holds a cluster that keeps its metadata {kept}, and --zookeeper asks for {wish.zookeeper};"
            " leave --zookeeper out, or name another directory with --data"
        )


def _count(brokers: int) -> str:
    return "one broker" if brokers == 1 else f"{brokers} brokers"


def default_settings(brokers: int) -> dict[str, str]:
    """What several brokers are for: every topic survives the loss of one, unless its creator says otherwise.

    Groups do not wait for members that may come later: here their first one should read at once.
    """
    replicas, in_sync_replicas = str(min(3, brokers)), "2" if brokers >= 3 else "1"
    return {
        "default.replication.factor": replicas,
        "group.initial.rebalance.delay.ms": "0",
        "min.insync.replicas": in_sync_replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync_replicas,
        "transaction.state.log.replication.factor": replicas,
    }


def refuse_reserved(names: Mapping[str, str]) -> None:
    for name in names:
        if name in RESERVED_SETTINGS:
            raise Refused(f"{name} is set for each broker by `tidelog up` itself: {RESERVED_SETTINGS[name]}")


def plan_text(plan: Plan) -> str:
    return json.dumps({"version": PLAN_VERSION, **plan._asdict()}, indent=2) + "\n"


def parse_plan(text: str, path: str) -> Plan:
    try:
        found = json.loads(text)
        if found["version"] != PLAN_VERSION:
            raise Refused(f"{path} was written by another version of Tidelog (version {found['version']})")
        zookeeper = found["zookeeper"]
        return Plan(int(found["brokers"]), int(found["port"]), None if zookeeper is None else str(zookeeper))
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} is damaged: {type(error).__name__}: {error}") from error


def properties_text(settings: Mapping[str, str]) -> str:
    """A server.properties file that reads back as the same settings."""
    heading = "# Settings of all brokers of this cluster; a change takes effect when a broker is started.\n"
    return heading + "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(settings.items()))


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text.startswith((" ", "\f")) else text
