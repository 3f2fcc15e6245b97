"""Dynamic configuration of topics, brokers and groups: AlterConfigs and IncrementalAlterConfigs."""

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import DEFAULT_ENTITY_NAME, ClusterImage
from tidelog.cluster.node_names import sanitized
from tidelog.cluster.topic_names import check_topic_name
from tidelog.config.broker import BrokerSettings
from tidelog.config.dynamic_changes import check_dynamic_change
from tidelog.config.group import ConsumerGroupSettings
from tidelog.config.resolution import (
    topic_defaults,
    validate_dynamic_broker_configs,
    validate_group_settings,
    validated_topic_settings,
)
from tidelog.config.setting import ConfigType, Setting, default_text, settings_of
from tidelog.config.topic import TopicSettings
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.errors import InvalidConfig, InvalidRequest, KafkaError, RequestTimedOut, UnknownTopicOrPartition
from tidelog.runtime.tls_context import check_certificates
from tidelog.store.interface import BadVersion, Check, Create, Delete, Node, NodeExists, NoNode, Operation, Set, Store
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
KEPT_CHANGE_NOTIFICATIONS = 100
"""Older notifications are deleted: every live broker has read them."""


_BROKER_ID = re.compile(r"[+-]?[0-9]{1,10}")


class ResourceType(IntEnum):
    """Numbers as the requests carry them."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


DECLARING: Mapping[int, type] = {
    ResourceType.TOPIC: TopicSettings,
    ResourceType.BROKER: BrokerSettings,
    ResourceType.GROUP: ConsumerGroupSettings,
}


class AlterOperation(IntEnum):
    """Numbers as IncrementalAlterConfigs carries them."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def never_yield() -> None:
    """Default of callers that need not yield to the event loop."""


class ConfigChange(NamedTuple):
    """Change of one resource: replace all its settings (`replacing`), or apply operations to the current ones."""

    resource_type: int
    resource_name: str
    entries: Sequence[tuple[str, str | None, int]]
    """Name, value and AlterOperation; AlterConfigs has only SET."""
    replacing: bool = False


class ConfigOutcome(NamedTuple):
    """Result for one resource; without an error, all settings that it now overrides."""

    resource_type: int
    resource_name: str
    configs: Mapping[str, str]
    error: KafkaError | None = None


class ConfigAdministration:
    """Writes settings to the store. Each decision reads the current image; the caller applies the change."""

    def __init__(
        self,
        store: Store,
        broker_id: BrokerId,
        settings: Callable[[], BrokerSettings],
        image: Callable[[], ClusterImage],
        yield_turn: Callable[[], Awaitable[None]] = never_yield,
    ) -> None:
        """`yield_turn` is awaited between one change and the next."""
        self._store = store
        self._broker_id = broker_id
        self._settings = settings
        self._image = image
        self._yield_turn = yield_turn

    async def alter(self, changes: Sequence[ConfigChange], *, validate_only: bool = False) -> list[ConfigOutcome]:
        """One outcome per change, in order."""
        counts = Counter((change.resource_type, change.resource_name) for change in changes)
        outcomes = []
        for change in changes:
            await self._yield_turn()
            try:
                if counts[change.resource_type, change.resource_name] > 1:
                    raise InvalidRequest("Each resource must appear at most once.")
                with store_errors_for_clients():
                    configs = await self._alter(change, validate_only=validate_only)
            except KafkaError as error:
                outcomes.append(ConfigOutcome(change.resource_type, change.resource_name, {}, error.as_value()))
            else:
                outcomes.append(ConfigOutcome(change.resource_type, change.resource_name, configs))
        return outcomes

    async def _alter(self, change: ConfigChange, *, validate_only: bool) -> dict[str, str]:
        check_entries(change)
        entity = self._entity(change)
        path = f"/config/{entity}"
        for _ in range(MAX_ATTEMPTS):
            node = await self._store.exists(path)
            current = {} if node is None else znodes.decode_config(node.data, path)
            configs = changed_configs(change, current)
            self._validate(change, configs, current)
            if validate_only or await self._write(change, entity, configs, node):
                return configs
        raise RequestTimedOut(f"the settings of {entity} kept changing")

    def _entity(self, change: ConfigChange) -> str:
        """`topics/orders`, `brokers/1`, `brokers/<default>` or `groups/readers`. Raises if there is no such one."""
        if change.resource_type == ResourceType.TOPIC:
            if not change.resource_name:
                raise InvalidRequest("Default topic resources are not allowed.")
            check_topic_name(change.resource_name)
            if change.resource_name not in self._image().topics:
                raise UnknownTopicOrPartition(f"The topic '{change.resource_name}' does not exist.")
            return f"topics/{change.resource_name}"
        if change.resource_type == ResourceType.BROKER:
            if change.resource_name:
                check_broker_name(change.resource_name, self._broker_id)
            return f"brokers/{change.resource_name or DEFAULT_ENTITY_NAME}"
        if change.resource_type == ResourceType.GROUP:
            if not change.resource_name:
                raise InvalidRequest("Default group resources are not allowed.")
            return f"groups/{sanitized(change.resource_name)}"
        raise InvalidRequest(f"Unknown resource type {change.resource_type}")

    def _validate(self, change: ConfigChange, configs: Mapping[str, str], stored: Mapping[str, str]) -> None:
        if change.resource_type == ResourceType.TOPIC:
            validated_topic_settings(topic_defaults(self._settings()), configs)
        elif change.resource_type == ResourceType.GROUP:
            validate_group_settings(self._settings(), configs)
        else:
            for_one_broker = bool(change.resource_name)
            validate_dynamic_broker_configs(configs, for_one_broker=for_one_broker)
            changed = {name: value for name, value in configs.items() if stored.get(name) != value}
            check_dynamic_change(self._settings(), changed, for_one_broker=for_one_broker)
            check_certificates(self._settings(), changed)

    async def _write(self, change: ConfigChange, entity: str, configs: Mapping[str, str], node: Node | None) -> bool:
        """False if another writer changed the settings or deleted the topic in the meantime."""
        operations: list[Operation] = [
            *stored(f"/config/{entity}", configs, node, may_be_empty=change.resource_type != ResourceType.GROUP),
            *[Delete(old) for old in await self._old_notifications()],
            Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), sequential=True),
        ]
        if change.resource_type == ResourceType.TOPIC:
            operations.insert(0, await self._topic_exists(change.resource_name))
        try:
            await self._store.multi(operations)
        except (BadVersion, NodeExists, NoNode):
            return False
        logger.info("changed settings resource=%s settings=%s", entity, ",".join(configs))
        return True

    async def _topic_exists(self, name: str) -> Check:
        """Check that makes the write fail if the topic is deleted at the same time: settings must not outlive it."""
        node = await self._store.exists(znodes.topic_path(name))
        if node is None:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        return Check(znodes.topic_path(name), node.version)

    async def _old_notifications(self) -> list[str]:
        names = await self._store.children(znodes.CONFIG_CHANGES)
        return [f"{znodes.CONFIG_CHANGES}/{name}" for name in names[:-KEPT_CHANGE_NOTIFICATIONS]]


def stored(path: str, configs: Mapping[str, str], node: Node | None, *, may_be_empty: bool) -> list[Operation]:
    """Operations that store `configs`. A group has a node only while it has settings: nothing creates groups."""
    if not configs and not may_be_empty:
        return [] if node is None else [Delete(path, node.version)]
    data = znodes.encode_config(configs)
    return [Create(path, data) if node is None else Set(path, data, node.version)]


def check_broker_name(name: str, broker_id: BrokerId) -> None:
    """A broker answers only for its own settings."""
    if not _BROKER_ID.fullmatch(name):
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
    if int(name) != broker_id:
        raise InvalidRequest(f"Unexpected broker id, expected {broker_id}, but received {name}")


def check_entries(change: ConfigChange) -> None:
    names = [name for name, _, _ in change.entries]
    if len(set(names)) < len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    nulls = [name for name, value, operation in change.entries if value is None and operation != AlterOperation.DELETE]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def changed_configs(change: ConfigChange, current: Mapping[str, str]) -> dict[str, str]:
    """Settings of the resource after the change. Raises InvalidConfig if an operation does not apply."""
    declared = settings_of(DECLARING[change.resource_type])
    configs = {} if change.replacing else dict(current)
    for name, value, operation in change.entries:
        match operation:
            case AlterOperation.DELETE:
                configs.pop(name, None)
            case AlterOperation.SET:
                configs[name] = value or ""
            case AlterOperation.APPEND:
                items = _items(declared.get(name), name, configs, "append")
                configs[name] = ",".join([*items, *(new for new in _split(value) if new not in items)])
            case AlterOperation.SUBTRACT:
                items = _items(declared.get(name), name, configs, "subtract")
                configs[name] = ",".join(item for item in items if item not in _split(value))
            case _:
                raise InvalidRequest(f"Unknown operations type {operation}")
    return configs


def _items(setting: Setting | None, name: str, configs: Mapping[str, str], verb: str) -> list[str]:
    if setting is None:
        raise InvalidConfig(f"Unknown config name: {name}")
    if setting.type is not ConfigType.LIST:
        raise InvalidConfig(f"Config value {verb} is not allowed for config key: {name}")
    return _split(configs.get(name, default_text(setting)))


def _split(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]
