"""Settings of the authorizer, a part of the broker settings."""

from dataclasses import dataclass

from tidelog.config.coordinators import CoordinatorSettings
from tidelog.config.setting import BadValue, setting

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def check_authorizer(name: str, value: str) -> None:
    if value not in ("", ACL_AUTHORIZER, STANDARD_AUTHORIZER):
        raise BadValue(f"{name} must be {STANDARD_AUTHORIZER} or {ACL_AUTHORIZER}: there are no plugins")


def check_super_users(name: str, value: str) -> None:
    for principal in parse_super_users(value):
        kind, colon, user = principal.partition(":")
        if not (kind and colon and user):
            raise BadValue(f"{name} needs principals separated by semicolons, such as User:alice;User:bob")


def parse_super_users(value: str) -> tuple[str, ...]:
    """Separated by semicolons, since names in certificates have commas."""
    return tuple(each.strip() for each in value.split(";") if each.strip())


@dataclass(frozen=True, kw_only=True, slots=True, init=False, eq=False, repr=False)
class AuthorizationSettings(CoordinatorSettings):
    allow_everyone_if_no_acl_found: bool = setting(
        default=False, doc="With an authorizer: whether everybody may do everything with a resource that has no ACLs."
    )
    authorizer_class_name: str = setting(
        default="",
        check=check_authorizer,
        doc=f"`{STANDARD_AUTHORIZER}` or `{ACL_AUTHORIZER}`: requests need permissions, which ACLs in the coordination"
        " store give. Empty: everybody may do everything.",
    )
    super_users: str = setting(
        default="",
        check=check_super_users,
        doc="With an authorizer: principals that may do everything, separated by semicolons (`User:admin;User:ops`).",
    )
