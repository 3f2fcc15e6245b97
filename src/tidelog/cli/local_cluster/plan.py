"""Plan of a local cluster: number of brokers, ports, ZooKeeper, default settings."""

# Core: no clock, no I/O, no await.

import json
from collections.abc import Mapping
from typing import NamedTuple

from tidelog.cli.command_error import CommandError

DEFAULT_BROKERS = 3
DEFAULT_PORT = 29092
HOST = "127.0.0.1"
LAST_PORT = 65_535
MAX_BROKERS = 100
INTER_BROKER_PORT_OFFSET = 200
"""Offset from the client port to the port of a secure broker for other brokers."""
METRICS_PORT_OFFSET = 100
"""Offset from the client port to the metrics port of a broker."""
PLAN_VERSION = 1
TEXT, JSON = LOG_FORMATS = ("text", "json")

RESERVED_SETTINGS = {
    "broker.id": "brokers are numbered from 1",
    "node.id": "brokers are numbered from 1",
    "listeners": "use --port",
    "advertised.listeners": "use --port",
    "log.dir": "use --data",
    "log.dirs": "use --data",
    "coordination.store": "use --data or --zookeeper",
    "metrics.listener": f"each broker serves metrics on its port + {METRICS_PORT_OFFSET}",
    "zookeeper.connect": "use --zookeeper",
}
"""Settings that `tidelog up` sets for each broker itself, and what to use instead."""


class PlanOptions(NamedTuple):
    """Flags of `tidelog up`. None means the stored value or, without one, the default."""

    brokers: int | None = None
    port: int | None = None
    zookeeper: str | None = None
    is_secure: bool = False
    log_format: str | None = None
    is_per_core: bool = False


class Plan(NamedTuple):
    brokers: int
    port: int
    zookeeper: str | None
    is_secure: bool = False
    """TLS, logins and permissions."""
    log_format: str = TEXT
    """Of the brokers' logs; a change takes effect when a broker is restarted."""
    is_per_core: bool = False
    """One broker for each core: brokers share the work, and topics have one replica."""

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)

    def port_of(self, broker_id: int) -> int:
        return self.port + broker_id - 1

    def inter_broker_port_of(self, broker_id: int) -> int:
        return self.port_of(broker_id) + INTER_BROKER_PORT_OFFSET

    def metrics_port_of(self, broker_id: int) -> int:
        return self.port_of(broker_id) + METRICS_PORT_OFFSET

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.port_of(broker_id)}" for broker_id in self.broker_ids)


def resolve_plan(requested: PlanOptions, stored: Plan | None, data: str) -> Plan:
    """The plan to run. A stored plan cannot change, except for the ports and the format of logs."""
    if stored is not None:
        _check_unchanged(requested, stored, data)
    brokers, port = (stored.brokers, stored.port) if stored else (DEFAULT_BROKERS, DEFAULT_PORT)
    brokers = brokers if requested.brokers is None else requested.brokers
    port = port if requested.port is None else requested.port
    given = requested if stored is None else stored
    log_format = requested.log_format or (stored.log_format if stored else TEXT)
    plan = Plan(brokers, port, given.zookeeper, given.is_secure, log_format, given.is_per_core)
    if not 1 <= brokers <= MAX_BROKERS:
        raise CommandError(f"--brokers {brokers}: must be between 1 and {MAX_BROKERS}")
    if not (port > 0 and plan.port_of(brokers) <= LAST_PORT):
        raise CommandError(f"--port {port}: ports {port} to {plan.port_of(brokers)} must be between 1 and {LAST_PORT}")
    return plan


def _check_unchanged(requested: PlanOptions, stored: Plan, data: str) -> None:
    if requested.brokers is not None and requested.brokers != stored.brokers:
        raise CommandError(
            f"{data} holds a cluster of {_count(stored.brokers)}, but --brokers is {requested.brokers};"
            " omit --brokers, or choose another directory with --data"
        )
    if requested.zookeeper is not None and requested.zookeeper != stored.zookeeper:
        kept = f"in ZooKeeper at {stored.zookeeper}" if stored.zookeeper else f"in {data} itself"
        raise CommandError(
            f"{data} holds a cluster with its metadata {kept}, but --zookeeper is {requested.zookeeper};"
            " omit --zookeeper, or choose another directory with --data"
        )

    if requested.is_per_core and not stored.is_per_core:
        raise CommandError(
            f"{data} holds a cluster that was not made with --per-core; choose another directory with --data"
        )
    if requested.is_secure and not stored.is_secure:
        raise CommandError(
            f"{data} holds a cluster without logins; choose another directory for a secure one with --data"
        )


def _count(brokers: int) -> str:
    return "one broker" if brokers == 1 else f"{brokers} brokers"


def brokers_per_core(requested: PlanOptions, stored: Plan | None, cores: int) -> PlanOptions:
    """With --per-core as many brokers as there are cores. A cluster keeps those that it has on another machine, too."""
    if not requested.is_per_core:
        return requested
    if requested.brokers is not None:
        raise CommandError("--per-core and --brokers exclude each other: the first starts one broker for each core")
    return requested if stored else requested._replace(brokers=min(cores, MAX_BROKERS))


def settings_per_core(machine: str) -> dict[str, str]:
    """All brokers are in one rack: the machine. A second replica on it would not survive the machine either."""
    return default_settings(1) | {"broker.rack": machine}


def default_settings(brokers: int) -> dict[str, str]:
    """Replication for production-like behaviour: every topic survives the loss of one broker.

    No initial rebalance delay: the first member of a group should read at once.
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


def reject_reserved(names: Mapping[str, str]) -> None:
    for name in names:
        if name in RESERVED_SETTINGS:
            raise CommandError(f"{name} cannot be set: `tidelog up` sets it for each broker; {RESERVED_SETTINGS[name]}")


def plan_text(plan: Plan) -> str:
    return json.dumps({"version": PLAN_VERSION, **plan._asdict()}, indent=2) + "\n"


def parse_plan(text: str, path: str) -> Plan:
    try:
        found = json.loads(text)
        if found["version"] != PLAN_VERSION:
            raise CommandError(
                f"{path} has format version {found['version']}, this Tidelog reads version {PLAN_VERSION}"
            )
        zookeeper = found["zookeeper"]
        return Plan(
            int(found["brokers"]),
            int(found["port"]),
            None if zookeeper is None else str(zookeeper),
            is_secure=bool(found.get("is_secure", False)),
            log_format=JSON if found.get("log_format") == JSON else TEXT,
            is_per_core=bool(found.get("is_per_core", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{path} is not valid: {type(error).__name__}: {error}") from error


def properties_text(settings: Mapping[str, str]) -> str:
    """A server.properties file that reads back as the same settings."""
    heading = "# Settings of all brokers of this cluster. A change takes effect when a broker is restarted.\n"
    return heading + "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(settings.items()))


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{text}" if text.startswith((" ", "\f")) else text
