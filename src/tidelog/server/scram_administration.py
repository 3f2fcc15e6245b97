"""Changes of SCRAM credentials in the store, as Kafka's ZooKeeper mode keeps them (`/config/users/<name>`).

Every broker writes by compare-and-set, with a notification for all brokers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.node_names import sanitized
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.errors import KafkaError, RequestTimedOut, ResourceNotFound
from tidelog.sasl.scram import ScramCredential
from tidelog.server.audit_log import audit_logger, shown
from tidelog.store.interface import BadVersion, Create, NodeExists, NoNode, Operation, Set, Store

MAX_ATTEMPTS = 5
DELETE_MISSING = "Attempt to delete a user credential that does not exist"


class UserChange(NamedTuple):
    """New credentials by mechanism; None deletes one."""

    user: str
    credentials: Mapping[str, ScramCredential | None]


async def alter_user(store: Store, change: UserChange, changed_by: str) -> KafkaError | None:
    """The error for this user, or None."""
    try:
        with store_errors_for_clients():
            await _alter(store, change)
    except KafkaError as error:
        return error.as_value()
    for mechanism, credential in change.credentials.items():
        action = "deleted" if credential is None else "set"
        audit_logger.info(
            "credential %s user=%s mechanism=%s by=%s", action, shown(change.user), mechanism, shown(changed_by)
        )
    return None


async def _alter(store: Store, change: UserChange) -> None:
    path = znodes.user_config_path(change.user)
    for _ in range(MAX_ATTEMPTS):
        node = await store.exists(path)
        current = {} if node is None else znodes.decode_config(node.data, path)
        configs = _changed(change, current)
        entity = f"users/{sanitized(change.user)}"
        data = znodes.encode_config(configs)
        operations: Sequence[Operation] = [
            Create(path, data) if node is None else Set(path, data, node.version),
            Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True),
        ]
        try:
            if node is None and await store.exists(znodes.USER_CONFIGS) is None:
                await store.create(znodes.USER_CONFIGS)
            await store.multi(operations)
        except (BadVersion, NodeExists, NoNode):
            continue
        return
    raise RequestTimedOut("the settings of the user kept changing")


def _changed(change: UserChange, current: Mapping[str, str]) -> dict[str, str]:
    configs = dict(current)
    for mechanism, credential in change.credentials.items():
        if credential is not None:
            configs[mechanism] = credential.to_text()
        elif configs.pop(mechanism, None) is None:
            raise ResourceNotFound(DELETE_MISSING)
    return configs
