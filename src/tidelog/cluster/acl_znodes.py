"""Znodes of ACLs in Apache Kafka 3.9 in ZooKeeper mode: paths and content (ZkAclStore, ZkAclChangeStore)."""

from collections.abc import Iterable

from tidelog.authorization.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from tidelog.cluster.znode_json import MalformedNode, decode_json, encode_json

LITERAL_ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
PREFIXED_ACLS = f"{EXTENDED_ACLS}/prefixed"
LITERAL_CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_PREFIX = "acl_changes_"
VERSION = 1

RESOURCE_TYPES = tuple(each for each in ResourceType if each > ResourceType.ANY)
ROOTS = {PatternType.LITERAL: LITERAL_ACLS, PatternType.PREFIXED: PREFIXED_ACLS}
CHANGES = {PatternType.LITERAL: LITERAL_CHANGES, PatternType.PREFIXED: EXTENDED_CHANGES}

ACL_PATHS = (
    EXTENDED_ACLS,
    *ROOTS.values(),
    *CHANGES.values(),
    *(f"{root}/{each.title}" for root in ROOTS.values() for each in RESOURCE_TYPES),
)
"""Nodes that must exist first, parents before children."""


def acls_path(pattern: ResourcePattern) -> str:
    return f"{ROOTS[pattern.pattern_type]}/{pattern.type.title}/{pattern.name}"


def change_path(pattern: ResourcePattern) -> str:
    """Prefix of the notification that the ACLs of a pattern have changed."""
    return f"{CHANGES[pattern.pattern_type]}/{CHANGE_PREFIX}"


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.title,
            "operation": entry.operation.title,
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return encode_json({"version": VERSION, "acls": acls})


def decode_acls(data: bytes, path: str) -> frozenset[AclEntry]:
    if not data:
        return frozenset()
    content = decode_json(data, path)
    try:
        if content["version"] != VERSION:
            raise MalformedNode(f"{path}: version {content['version']} of ACLs is not known")
        return frozenset(
            AclEntry(
                str(each["principal"]),
                str(each["host"]),
                Operation(Operation.named(each["operation"])),
                Permission(Permission.named(each["permissionType"])),
            )
            for each in content["acls"]
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_change(pattern: ResourcePattern) -> bytes:
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.type.name}:{pattern.name}".encode()
    return encode_json(
        {
            "version": VERSION,
            "resourceType": pattern.type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def decode_change(data: bytes, path: str) -> ResourcePattern:
    try:
        if path.startswith(f"{LITERAL_CHANGES}/"):
            kind, _, name = data.decode().partition(":")
            return ResourcePattern(ResourceType(ResourceType.named(kind)), name)
        content = decode_json(data, path)
        return ResourcePattern(
            ResourceType(ResourceType.named(content["resourceType"])),
            str(content["name"]),
            PatternType(PatternType.named(content["patternType"])),
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise MalformedNode(f"{path}: {error!r}") from error
