"""`tidelog acl add`, `list`, `remove` and `explain`."""

import argparse
import json

from tidelog.authorization.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.authorization.authorizer import Authorizer, Decision
from tidelog.cli.command_error import CommandError
from tidelog.client.admin.acl_admin import AclAdmin, exactly
from tidelog.client.admin.config_admin import ConfigAdmin, Resource, ResourceKind
from tidelog.client.routing.cluster import Cluster
from tidelog.config.authorization import ACL_AUTHORIZER, parse_super_users
from tidelog.errors import SecurityDisabled
from tidelog.terminal.plurals import plural
from tidelog.terminal.tables import table

NO_AUTHORIZER = (
    "the brokers have no authorizer: everybody may do everything; set authorizer.class.name and restart them"
)
TITLES = ("PRINCIPAL", "RULE", "OPERATION", "RESOURCE", "NAME", "HOST")
SETTINGS = ("super.users", "allow.everyone.if.no.acl.found", "authorizer.class.name")


async def add(cluster: Cluster, options: argparse.Namespace) -> None:
    bindings = bindings_of(options)
    try:
        await AclAdmin(cluster).create(bindings)
    except SecurityDisabled:
        raise CommandError(NO_AUTHORIZER) from None
    _print_changed("added", bindings, as_json=options.json)


async def remove(cluster: Cluster, options: argparse.Namespace) -> None:
    bindings = bindings_of(options)
    try:
        removed = await AclAdmin(cluster).delete(map(exactly, bindings))
    except SecurityDisabled:
        raise CommandError(NO_AUTHORIZER) from None
    if not removed:
        raise CommandError("there is no such rule; `tidelog acl list` lists the rules")
    _print_changed("removed", removed, as_json=options.json)


async def list_(cluster: Cluster, options: argparse.Namespace) -> None:
    kind = ResourceType.ANY if options.kind is None else kind_of(options.kind)
    selected = AclFilter(
        kind,
        options.name,
        PatternType.MATCH if options.name else PatternType.ANY,
        None if options.principal is None else principal_of(options.principal),
    )
    try:
        found = await AclAdmin(cluster).describe(selected)
    except SecurityDisabled:
        raise CommandError(NO_AUTHORIZER) from None
    if options.json:
        print(json.dumps(list(map(_as_json, found))))
    elif found:
        rows = sorted(map(_row, found))
        print("\n".join(table(TITLES, rows)))
    else:
        print("there are no such rules")


async def explain(cluster: Cluster, options: argparse.Namespace) -> None:
    principal, operation = principal_of(options.principal), operation_of(options.operations)
    resource, name = kind_of(options.kind), _name(options)
    try:
        authorizer = await _authorizer(cluster, await AclAdmin(cluster).describe(AclFilter()))
    except SecurityDisabled:
        decision, text = Decision(True), NO_AUTHORIZER
    else:
        decision = authorizer.decide(principal, options.host, operation, resource, name)
        text = reason_text(decision, principal, authorizer.rules_about(principal, resource, name))
    if options.json:
        rule = None if decision.rule is None else _as_json(decision.rule)
        print(json.dumps({"allowed": decision.is_allowed, "rule": rule, "reason": text}))
        return
    verb = "may" if decision.is_allowed else "may not"
    print(f"{principal} {verb} {operation.title} {resource.title} {name}: {text}")


def reason_text(decision: Decision, principal: str, others: list[AclBinding]) -> str:
    if decision.is_super_user:
        return f"{principal} is in super.users"
    if decision.rule is not None:
        return f"rule: {decision.rule}"
    if decision.is_allowed:
        return "there is no rule for this resource, and allow.everyone.if.no.acl.found is set"
    if others:
        return f"no rule allows it; rules of this principal for the resource: {'; '.join(map(str, others))}"
    if decision.has_rules:
        return "no rule allows it; there are rules for this resource, but none for this principal"
    return "there is no rule for this resource"


async def _authorizer(cluster: Cluster, bindings: list[AclBinding]) -> Authorizer:
    """With the rules, and the settings of one broker: those of all should be the same."""
    broker_id = min((await cluster.refresh()).brokers)
    entries = await ConfigAdmin(cluster).describe(Resource(ResourceKind.BROKER, str(broker_id)), SETTINGS)
    settings = {entry.name: entry.value or "" for entry in entries}
    authorizer = Authorizer(
        parse_super_users(settings.get("super.users", "")),
        allow_everyone_if_no_acl_found=settings.get("allow.everyone.if.no.acl.found", "") == "true",
        asks_like_zookeeper_mode=settings.get("authorizer.class.name", "") == ACL_AUTHORIZER,
    )
    entries_by_pattern: dict[ResourcePattern, set[AclEntry]] = {}
    for pattern, entry in bindings:
        entries_by_pattern.setdefault(pattern, set()).add(entry)
    authorizer.replace_all({pattern: frozenset(found) for pattern, found in entries_by_pattern.items()})
    return authorizer


def bindings_of(options: argparse.Namespace) -> list[AclBinding]:
    pattern_type = PatternType.PREFIXED if options.prefix else PatternType.LITERAL
    pattern = ResourcePattern(kind_of(options.kind), _name(options), pattern_type)
    permission = Permission.DENY if options.deny else Permission.ALLOW
    principal = principal_of(options.principal)
    return [
        AclBinding(pattern, AclEntry(principal, options.host, operation_of(each), permission))
        for each in options.operations.split(",")
    ]


def principal_of(text: str) -> str:
    return text if ":" in text else f"User:{text}"


def operation_of(text: str) -> Operation:
    try:
        found = Operation(Operation.named(text))
    except ValueError:
        found = Operation.UNKNOWN
    if found <= Operation.ANY:
        raise CommandError(f"{text!r} is not an operation; `tidelog acl add --help` lists them")
    return found


def kind_of(text: str) -> ResourceType:
    return ResourceType(ResourceType.named(text))


def _name(options: argparse.Namespace) -> str:
    if options.kind == "cluster":
        if options.name not in (None, CLUSTER_NAME):
            raise CommandError("the cluster has no name: leave it out")
        return CLUSTER_NAME
    if not options.name:
        raise CommandError(f"expected the name of the {options.kind}, or '*' for all")
    name: str = options.name
    return name


def _print_changed(verb: str, bindings: list[AclBinding], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(list(map(_as_json, bindings))))
        return
    print(f"{verb} {plural(len(bindings), 'rule')}:")
    for binding in bindings:
        print(f"  {binding}")


def _row(binding: AclBinding) -> tuple[str, ...]:
    pattern, entry = binding
    name = f"{pattern.name}..." if pattern.pattern_type is PatternType.PREFIXED else pattern.name
    host = "any" if entry.host == WILDCARD else entry.host
    return entry.principal, entry.permission.title, entry.operation.title, pattern.type.title, name, host


def _as_json(binding: AclBinding) -> dict[str, str]:
    pattern, entry = binding
    return {
        "principal": entry.principal,
        "permission": entry.permission.title,
        "operation": entry.operation.title,
        "resource_type": pattern.type.title,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.title,
        "host": entry.host,
    }
