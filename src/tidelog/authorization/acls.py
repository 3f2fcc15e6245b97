"""Access control lists: resources, operations, bindings, and filters that select bindings (AclBinding in Kafka)."""

from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
ANY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The only name of a CLUSTER resource."""


class Code(IntEnum):
    """Enum of codes on the wire. A code that is not known becomes UNKNOWN."""

    __hash__ = int.__hash__  # Enum.__hash__ is Python code, too slow for the keys of the decision caches

    @classmethod
    def _missing_(cls, value: object) -> "Code | None":
        return cls(0) if isinstance(value, int) else None

    @property
    def title(self) -> str:
        """Name as in znodes and on command lines: `TransactionalId`."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @classmethod
    def named(cls, name: str) -> "Code":
        """Member with this title or name, in upper or lower case. Raises ValueError."""
        plain = name.replace("_", "").replace("-", "").lower()
        for each in cls:
            if each.title.lower() == plain and each:
                return each
        raise ValueError(f"{name!r} is not one of {', '.join(each.title for each in cls if each)}")


class ResourceType(Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE),
}
"""Operations that exist on a resource type: the candidates for the authorized-operations fields of responses."""


class ResourcePattern(NamedTuple):
    """Pattern of resources: one by name, all (`*`), or those whose names begin with a prefix."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        prefixed = " prefixed" if self.pattern_type is PatternType.PREFIXED else ""
        return f"{self.type.title}{prefixed} {self.name}"


class AclEntry(NamedTuple):
    """Access control entry: allows or denies an operation to a principal from a host."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        host = "any host" if self.host == WILDCARD else f"host {self.host}"
        return f"{self.permission.title} {self.operation.title} to {self.principal} from {host}"


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


class AclFilter(NamedTuple):
    """Filter of bindings. None and ANY match everything; MATCH selects what applies to a resource of the name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        return not (self.resource_type and self.pattern_type and self.operation and self.permission)

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )


def binding_mistake(binding: AclBinding) -> str | None:
    """Why a binding cannot be stored; None if it can."""
    pattern, entry = binding
    if pattern.type <= ResourceType.ANY:
        return f"Invalid resourceType {pattern.type.name}"
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.pattern_type.name}"
    if entry.operation <= Operation.ANY:
        return f"Invalid operation {entry.operation.name}"
    if entry.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {entry.permission.name}"
    if not pattern.name:
        return "Resource name should not be empty"
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if "/" in pattern.name or pattern.name in (".", ".."):
        return f"ACL binding contains invalid resource name: {pattern.name}"
    if not is_principal(entry.principal):
        return f"Could not parse principal from `{entry.principal}`: expected type and name, such as User:alice"
    return None


def is_principal(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)
