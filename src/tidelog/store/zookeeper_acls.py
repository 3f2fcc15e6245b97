"""ACLs of nodes in ZooKeeper with zookeeper.set.acl=true, as Apache Kafka sets them (ZkData.defaultAcls)."""

# Core: no clock, no I/O, no await.

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

OF_OLD_CONSUMERS = "/consumers"
"""Consumers before Kafka 0.9 write under it themselves."""
SECRET_PREFIXES = (
    "/config/users",  # salted passwords of SCRAM
    "/config/brokers",
    "/delegation_token/tokens",
    "/config/tidelog-",  # not Kafka's: the secret from which salts of unknown users are made
)


def acls_of(path: str, *, is_secure: bool) -> list[ACL]:
    """Rights on a new node: only the user of this session may change it, and everybody may read most nodes."""
    if not is_secure or path == OF_OLD_CONSUMERS:
        return list(OPEN_ACL_UNSAFE)
    if path.startswith(SECRET_PREFIXES):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
