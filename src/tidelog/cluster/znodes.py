"""Znodes of Apache Kafka 3.9 in ZooKeeper mode: paths and JSON content."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from tidelog.cluster.image import BrokerRegistration, PartitionRegistration, Topic
from tidelog.cluster.node_names import sanitized
from tidelog.cluster.znode_json import INT32 as INT32
from tidelog.cluster.znode_json import MalformedNode as MalformedNode
from tidelog.cluster.znode_json import decode_field, decode_json, encode_json, int32, int64, node_name, text_or_none
from tidelog.config.listeners import PROTOCOL_NUMBERS, Endpoint, parse_listener
from tidelog.numerals import whole_number
from tidelog.types import ZERO_UUID, BrokerId, TopicPartition, Uuid, uuid_from_text, uuid_text

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
LOG_DIRECTORIES = "/brokers/directories"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USER_CONFIGS = "/config/users"
"""Created with the first user."""
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
IN_SYNC_CHANGES = "/isr_change_notification"
IN_SYNC_CHANGE_PREFIX = f"{IN_SYNC_CHANGES}/isr_change_"
LOG_DIRECTORY_EVENTS = "/log_dir_event_notification"
LOG_DIRECTORY_EVENT_PREFIX = f"{LOG_DIRECTORY_EVENTS}/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"

PERSISTENT_PATHS = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    BROKER_SEQUENCE,
    LOG_DIRECTORIES,
    TOPICS,
    "/cluster",
    "/config",
    BROKER_CONFIGS,
    CONFIG_CHANGES,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    IN_SYNC_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIRECTORY_EVENTS,
)
"""Nodes that a broker creates first if they are missing, parents before children."""

REGISTRATION_VERSION = 5
TOPIC_VERSION = 3
STATE_VERSION = 1
CONFIG_VERSION = 1
CONFIG_CHANGE_VERSION = 2
CONTROLLER_VERSION = 2
PARTITION_LIST_VERSION = 1
LOG_DIRECTORY_EVENT_VERSION = 1
LOG_DIRECTORY_FAILED = 1
"""The only type of log directory event in Kafka."""
PRODUCER_ID_BLOCK_VERSION = 1
LOG_DIRECTORY_VERSION = 1
FROM_THE_BEGINNING = 0
"""Instead of the broker epoch in which a log directory appeared: the broker had it when it first registered."""
TO_THE_END = 2**63 - 1
"""Instead of the last broker epoch with a log directory: it is not known."""
NO_JMX_PORT = -1
NO_KRAFT_EPOCH = -1
UNKNOWN_EPOCH = -1
"""Instead of a broker epoch that is not known."""
DECODED_NODES = 256
"""Registrations and cluster nodes that are remembered: controllers and brokers read the same ones again and again."""

DECODING_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions that decoding raises for JSON of an unexpected shape."""


class TakeoverState(StrEnum):
    """State of the takeover of log directories by an empty store (R44)."""

    UNKNOWN = ""  # a store that no Tidelog controller has served yet, or one of Apache Kafka
    WAITING = "waiting"  # something is missing, see `reason`
    REJECTED = "refused"  # waiting does not help, see `reason` for what to do
    REGISTERING = "registering"  # some of the topics found are in the store
    DONE = "done"


class ClusterNode(NamedTuple):
    cluster_id: str
    takeover: TakeoverState = TakeoverState.UNKNOWN
    reason: str = ""
    store_id: str = ""
    """Random id of the store, so that a rebuilt store is not mistaken for an older copy of the lost one (R44)."""
    restored_by: BrokerId | None = None
    """The broker whose log directories had the cluster id when the store had none (R44)."""


class ProducerIdBlock(NamedTuple):
    broker_id: BrokerId
    first: int
    last: int


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def log_directories_path(broker_id: BrokerId) -> str:
    """Tidelog's own node: one child for each log directory that the broker has ever had (R42).

    Its version counts the changes of the store that the broker has noted (R44).
    """
    return f"{LOG_DIRECTORIES}/{broker_id}"


UNREGISTERED_BROKER = b'{"version":1,"unregistered":true}'
"""Content of `log_directories_path` of a broker that has left the cluster; otherwise the node is empty."""


def log_directory_path(broker_id: BrokerId, directory_id: str) -> str:
    return f"{LOG_DIRECTORIES}/{broker_id}/{directory_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(name: str) -> str:
    return f"{BROKER_CONFIGS}/{name}"


def group_config_path(group_id: str) -> str:
    """Tidelog's own node: Kafka has no group configs in ZooKeeper mode."""
    return f"{GROUP_CONFIGS}/{sanitized(group_id)}"


def user_config_path(user: str) -> str:
    return f"{USER_CONFIGS}/{sanitized(user)}"


def delete_topic_path(topic: str) -> str:
    """Empty node of a topic that is to be deleted."""
    return f"{DELETE_TOPICS}/{topic}"


def encode_broker(broker: BrokerRegistration, timestamp_ms: int) -> bytes:
    plain = next((found for found in broker.endpoints if found.security_protocol == "PLAINTEXT"), None)
    content: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {
            endpoint.listener_name: endpoint.security_protocol for endpoint in broker.endpoints
        },
        "endpoints": [str(endpoint) for endpoint in broker.endpoints],
        "jmx_port": NO_JMX_PORT,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": REGISTRATION_VERSION,
        "timestamp": str(timestamp_ms),
    }
    if broker.rack is not None:
        content["rack"] = broker.rack
    if broker.previous_epoch != UNKNOWN_EPOCH:
        content["previous_broker_epoch"] = broker.previous_epoch
    if broker.directory_ids:
        content["directory_ids"] = broker.directory_ids
    return encode_json(content)


@lru_cache(maxsize=DECODED_NODES)
def decode_broker(broker_id: BrokerId, data: bytes, epoch: int) -> BrokerRegistration:
    content = decode_json(data, broker_path(broker_id))
    try:
        protocols = content["listener_security_protocol_map"]
        endpoints = tuple(_endpoint(text, protocols) for text in content["endpoints"])
        return BrokerRegistration(
            broker_id,
            endpoints,
            text_or_none(content.get("rack")),
            epoch,
            int64(content.get("previous_broker_epoch", UNKNOWN_EPOCH)),
            tuple(map(node_name, content.get("directory_ids", ()))),
        )
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{broker_path(broker_id)}: {error!r}") from error


class LogDirectoryEpochs(NamedTuple):
    """The broker epochs in which a log directory was first and last registered."""

    first: int
    last: int


def encode_log_directory(*, is_from_the_beginning: bool) -> bytes:
    """Content of the node of a log directory: whether the broker had the directory from the beginning.

    Every registration writes the node, so that the transaction of its last change is the last broker epoch with it.
    Earlier versions wrote it only once, and without the mark that says so.
    """
    content: dict[str, object] = {"version": LOG_DIRECTORY_VERSION, "written_by_every_registration": True}
    if is_from_the_beginning:
        content["from_the_beginning"] = True
    return encode_json(content)


def decode_log_directory(data: bytes, path: str, created_id: int, modified_id: int) -> LogDirectoryEpochs:
    content = decode_json(data, path)
    first = FROM_THE_BEGINNING if content.get("from_the_beginning") else created_id
    return LogDirectoryEpochs(first, modified_id if content.get("written_by_every_registration") else TO_THE_END)


def encode_topic(topic_id: Uuid, partitions: Sequence[PartitionRegistration]) -> bytes:
    """`removed_replicas` is Tidelog's extension; Kafka does not read it, and drops it when it writes the node."""
    content: dict[str, object] = {
        "removing_replicas": {str(each.index): each.removing_replicas for each in partitions if each.removing_replicas},
        "partitions": {str(each.index): each.replicas for each in partitions},
        "topic_id": uuid_text(topic_id),
        "adding_replicas": {str(each.index): each.adding_replicas for each in partitions if each.adding_replicas},
        "version": TOPIC_VERSION,
    }
    removed = {str(each.index): each.removed_replicas for each in partitions if each.removed_replicas}
    if removed:
        content["removed_replicas"] = removed
    return encode_json(content)


def partition_count(name: str, data: bytes) -> int:
    """Number of states to read before `decode_topic`."""
    partitions = decode_field(data, topic_path(name), "partitions")
    if not isinstance(partitions, dict):
        raise MalformedNode(f"{topic_path(name)}: partitions is not an object")
    return len(partitions)


def decode_topic(
    name: str, data: bytes, version: int, states: Sequence[tuple[bytes, int] | None], configs: Mapping[str, str]
) -> Topic:
    """`states`: data and version of the state node of each partition; None if no leader was ever elected."""
    content = decode_json(data, topic_path(name))
    try:
        assignment: dict[str, list[int]] = content["partitions"]
        partitions = tuple(
            _decode_partition(name, index, content, state)
            for index, state in zip(range(len(assignment)), states, strict=True)
        )
        topic_id = uuid_from_text(content["topic_id"]) if "topic_id" in content else ZERO_UUID
        return Topic(name, topic_id, partitions, configs, version)
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{topic_path(name)}: {error!r}") from error


def encode_state(partition: PartitionRegistration) -> bytes:
    state: dict[str, object] = {
        "controller_epoch": partition.controller_epoch,
        "leader": partition.leader,
        "version": STATE_VERSION,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.in_sync_replicas,
    }
    epochs = [partition.in_sync_epochs.get(replica, UNKNOWN_EPOCH) for replica in partition.in_sync_replicas]
    if any(epoch != UNKNOWN_EPOCH for epoch in epochs):
        state["isr_epochs"] = epochs
    if partition.eligible_leader_replicas:
        eligible = partition.eligible_leader_replicas
        state["elr"] = eligible
        state["elr_epochs"] = [partition.eligible_leader_epochs.get(replica, UNKNOWN_EPOCH) for replica in eligible]
    return encode_json(state)


def decode_state(topic: str, partition: PartitionRegistration, data: bytes, version: int) -> PartitionRegistration:
    """The partition with leader, ISR and epochs from its state node."""
    path = state_path(topic, partition.index)
    content = decode_json(data, path)
    try:
        return replace(
            partition,
            leader=int32(content["leader"]),
            leader_epoch=int32(content["leader_epoch"]),
            in_sync_replicas=tuple(map(int32, content["isr"])),
            controller_epoch=int32(content["controller_epoch"]),
            version=version,
            in_sync_epochs=_epochs(content["isr"], content.get("isr_epochs", ())),
            eligible_leader_replicas=tuple(map(int32, content.get("elr", ()))),
            eligible_leader_epochs=_epochs(content.get("elr", ()), content.get("elr_epochs", ())),
        )
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def _epochs(replicas: Iterable[BrokerId], epochs: Iterable[object]) -> dict[BrokerId, int]:
    """Epochs by replica, without unknown ones. States written by Kafka have none."""
    found = zip(replicas, map(int64, epochs), strict=False)
    return {replica: epoch for replica, epoch in found if epoch != UNKNOWN_EPOCH}


def encode_config(configs: Mapping[str, str]) -> bytes:
    return encode_json({"version": CONFIG_VERSION, "config": dict(configs)})


def decode_config(data: bytes, path: str) -> dict[str, str]:
    if not data:
        return {}
    content = decode_json(data, path).get("config", {})
    if not isinstance(content, dict):
        raise MalformedNode(f"{path}: config is not an object")
    return {str(name): str(value) for name, value in content.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Notification of a config change. Entity paths: `topics/orders`, `brokers/1`, `brokers/<default>`."""
    return encode_json({"version": CONFIG_CHANGE_VERSION, "entity_path": entity_path})


def decode_config_change(data: bytes, path: str) -> str:
    """The entity path. Kafka before 0.10.1 wrote type and name instead, and 3.9 still reads that."""
    content = decode_json(data, path)
    try:
        if content["version"] == 1:
            return f"{content['entity_type']}/{content['entity_name']}"
        return str(content["entity_path"])
    except KeyError as error:
        raise MalformedNode(f"{path}: no {error}") from error


def encode_partition_list(partitions: Iterable[TopicPartition]) -> bytes:
    """Content of an ISR change notification and of a preferred leader election."""
    return encode_json({"version": PARTITION_LIST_VERSION, "partitions": [each._asdict() for each in partitions]})


def decode_partition_list(data: bytes, path: str) -> list[TopicPartition]:
    try:
        named = decode_field(data, path, "partitions")
        return [TopicPartition(str(each["topic"]), int32(each["partition"])) for each in named]
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_log_directory_event(broker_id: BrokerId) -> bytes:
    """Notification that a log directory of the broker failed."""
    return encode_json({"version": LOG_DIRECTORY_EVENT_VERSION, "broker": broker_id, "event": LOG_DIRECTORY_FAILED})


def decode_log_directory_event(data: bytes, path: str) -> BrokerId:
    try:
        return int32(decode_field(data, path, "broker"))
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{path}: {error!r}") from error


def encode_reassignment(replicas: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    partitions = [{**partition._asdict(), "replicas": list(brokers)} for partition, brokers in replicas.items()]
    return encode_json({"version": PARTITION_LIST_VERSION, "partitions": partitions})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    partitions = decode_field(data, REASSIGN_PARTITIONS, "partitions")
    try:
        return {
            TopicPartition(str(each["topic"]), int32(each["partition"])): tuple(map(int32, each["replicas"]))
            for each in partitions
        }
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{REASSIGN_PARTITIONS}: {error!r}") from error


def decode_cluster_id(data: bytes) -> str:
    return decode_cluster(data).cluster_id


def encode_cluster(node: ClusterNode) -> bytes:
    """All but the id are Tidelog's extensions; Kafka reads only the id."""
    content: dict[str, object] = {"version": "1", "id": node.cluster_id}
    if node.takeover is not TakeoverState.UNKNOWN:
        content["takeover"] = node.takeover.value
    if node.reason:
        content["takeover_reason"] = node.reason
    if node.store_id:
        content["store_id"] = node.store_id
    if node.restored_by is not None:
        content["restored_by"] = node.restored_by
    return encode_json(content)


@lru_cache(maxsize=DECODED_NODES)
def decode_cluster(data: bytes) -> ClusterNode:
    content = decode_json(data, CLUSTER_ID)
    if "id" not in content:
        raise MalformedNode(f"{CLUSTER_ID}: no id")
    try:
        state = TakeoverState(content.get("takeover", ""))
        reason, store_id = (str(content.get(key, "")) for key in ("takeover_reason", "store_id"))
        restored_by = content.get("restored_by")
        return ClusterNode(
            str(content["id"]), state, reason, store_id, None if restored_by is None else int(restored_by)
        )
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{CLUSTER_ID}: {error!r}") from error


def encode_controller(broker_id: BrokerId, timestamp_ms: int) -> bytes:
    return encode_json(
        {
            "version": CONTROLLER_VERSION,
            "brokerid": broker_id,
            "timestamp": str(timestamp_ms),
            "kraftControllerEpoch": NO_KRAFT_EPOCH,
        }
    )


def decode_controller(data: bytes) -> BrokerId:
    try:
        return int32(decode_field(data, CONTROLLER, "brokerid"))
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{CONTROLLER}: {error!r}") from error


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode("ascii")


def decode_controller_epoch(data: bytes) -> int:
    epoch = whole_number(data.decode("latin-1"))
    if epoch is None or epoch not in INT32:
        raise MalformedNode(f"{CONTROLLER_EPOCH}: {data!r}")
    return epoch


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return encode_json(
        {
            "version": PRODUCER_ID_BLOCK_VERSION,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    content = decode_json(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(int(content["broker"]), int(content["block_start"]), int(content["block_end"]))
    except DECODING_ERRORS as error:
        raise MalformedNode(f"{PRODUCER_ID_BLOCK}: {error!r}") from error


def _decode_partition(
    name: str, index: int, topic: dict[str, Any], state: tuple[bytes, int] | None
) -> PartitionRegistration:
    key = str(index)
    replicas = tuple(map(int32, topic["partitions"][key]))
    if not replicas:
        raise ValueError(f"partition {index} has no replicas")
    adding = tuple(map(int32, topic.get("adding_replicas", {}).get(key, ())))
    removing = tuple(map(int32, topic.get("removing_replicas", {}).get(key, ())))
    removed = tuple(map(int32, topic.get("removed_replicas", {}).get(key, ())))
    without_state = PartitionRegistration(index, replicas, -1, 0, (), 0, -1, adding, removing, removed_replicas=removed)
    if state is None:
        return without_state
    return decode_state(name, without_state, *state)


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    text.encode()  # fails for a lone surrogate, which cannot be sent
    endpoint = parse_listener(text, protocols)
    if endpoint.security_protocol not in PROTOCOL_NUMBERS:
        raise ValueError(f"unknown security protocol {endpoint.security_protocol}")
    return endpoint
