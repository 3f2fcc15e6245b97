"""Topic administration: CreateTopics, DeleteTopics, CreatePartitions.

Decisions are written to the store; controller events carry them out.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tidelog.cluster import znodes
from tidelog.cluster.image import ClusterImage, Topic
from tidelog.cluster.topic_names import is_internal
from tidelog.config.broker import BrokerSettings
from tidelog.config.resolution import topic_defaults
from tidelog.controller.configs import never_yield
from tidelog.controller.context_loading import load_topics
from tidelog.controller.members import absent_members
from tidelog.controller.registration import ControllerFence
from tidelog.controller.store_errors import store_errors_for_clients
from tidelog.controller.topic_validation import (
    MorePartitions,
    NewTopic,
    TopicDefaults,
    check_request_size,
    decide_more_partitions,
    decide_topic,
)
from tidelog.errors import (
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    NotController,
    RequestTimedOut,
    TopicAlreadyExists,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.runtime.randomness import Randomness
from tidelog.store.interface import (
    BadVersion,
    Check,
    Create,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Store,
)
from tidelog.types import ZERO_UUID, BrokerId, Uuid

logger = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
"""Maximum number of decisions when the store changes between read and write."""


MAX_BATCH_PARTITIONS = 1000
"""Maximum number of partitions created in one transaction with several topics."""


class TopicOutcome(NamedTuple):
    """Outcome for one topic of a request; without an error, the topic as it is now (or would be, or was)."""

    name: str
    topic: Topic | None = None
    error: KafkaError | None = None
    topic_id: Uuid = ZERO_UUID
    """The id named by a deletion request, or the topic's."""


class TopicAdministration:
    """Administration in one term. Each decision reads the current image, which shows a change once brokers have it."""

    def __init__(
        self,
        store: Store,
        randomness: Randomness,
        settings: Callable[[], BrokerSettings],
        image: Callable[[], ClusterImage],
        fence: ControllerFence,
        yield_turn: Callable[[], Awaitable[None]] = never_yield,
    ) -> None:
        """`yield_turn` is awaited between the decision on one topic and the next."""
        self._yield_turn = yield_turn
        self._store = store
        self._randomness = randomness
        self._settings = settings
        self._image = image
        self._controller_fence = fence

    async def create_topics(self, requests: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicOutcome]:
        """One outcome per name. A name that occurs twice is refused."""
        try:
            check_request_size(requests, self._settings().num_partitions)
        except KafkaError as error:
            return [TopicOutcome(name, error=error) for name in dict.fromkeys(each.name for each in requests)]
        counts = Counter(request.name for request in requests)
        image = self._image()
        try:
            with store_errors_for_clients():
                absent = await absent_members(self._store, image)
        except KafkaError as error:
            return [TopicOutcome(name, error=error) for name in counts]
        outcomes: dict[str, TopicOutcome] = {}
        for request in requests:
            await self._yield_turn()
            if counts[request.name] > 1:
                outcomes[request.name] = TopicOutcome(request.name, error=InvalidRequest("Duplicate topic name."))
                continue
            outcomes[request.name] = self._decided(request, image, absent)
            topic = outcomes[request.name].topic
            if topic is not None:
                image = image.with_topics(topic)
        if not validate_only:
            decided = [outcome.topic for outcome in outcomes.values() if outcome.topic is not None]
            for batch in _batches(decided):
                outcomes.update(await self._write_new_topics(batch))
        return list(outcomes.values())

    async def create_topic(self, request: NewTopic, *, validate_only: bool = False) -> TopicOutcome:
        (outcome,) = await self.create_topics([request], validate_only=validate_only)
        return outcome

    async def delete_topics(self, requests: Sequence[str | Uuid]) -> list[TopicOutcome]:
        """Delete by name (str) or by id (bytes). An outcome has the deleted topic."""
        counts = Counter(requests)
        image = self._image()
        names_of_ids = {image.topic_names.get(wanted) for wanted in counts if not isinstance(wanted, str)}
        outcomes = []
        for wanted, count in counts.items():
            await self._yield_turn()
            if count > 1:
                error = InvalidRequest("Duplicate topic name." if isinstance(wanted, str) else "Duplicate topic id.")
                outcomes.append(_rejected(wanted, error))
            elif isinstance(wanted, str) and wanted in names_of_ids:
                error = InvalidRequest("The provided topic name maps to an ID that was already supplied.")
                outcomes.append(TopicOutcome(wanted, error=error, topic_id=image.topics[wanted].topic_id))
            elif isinstance(wanted, str) or image.topic_names.get(wanted) not in counts:
                outcomes.append(await self._delete_topic(wanted))
        return outcomes

    async def create_partitions(
        self, requests: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicOutcome]:
        counts = Counter(request.name for request in requests)
        outcomes = []
        for request in {request.name: request for request in requests}.values():
            await self._yield_turn()
            if counts[request.name] > 1:
                outcomes.append(TopicOutcome(request.name, error=InvalidRequest("Duplicate topic name.")))
            else:
                outcomes.append(await self._create_partitions(request, validate_only=validate_only))
        return outcomes

    def _decided(self, request: NewTopic, image: ClusterImage, absent: Sequence[BrokerId]) -> TopicOutcome:
        settings = self._settings()
        defaults = TopicDefaults(settings.num_partitions, settings.default_replication_factor, topic_defaults(settings))
        try:
            topic = decide_topic(
                request, image, defaults, new_topic_id(self._randomness, image), self._randomness.below, absent
            )
        except KafkaError as error:
            return TopicOutcome(request.name, error=error.as_value())
        return TopicOutcome(request.name, topic, topic_id=topic.topic_id)

    async def _write_new_topics(self, topics: Sequence[Topic]) -> dict[str, TopicOutcome]:
        """Create all topics in one transaction; if that fails, one by one."""
        try:
            with store_errors_for_clients():
                await self._write(await self._creation(topics))
        except (NodeExists, BadVersion, NoNode):
            if len(topics) > 1:
                return {topic.name: (await self._write_new_topics([topic]))[topic.name] for topic in topics}
            (name,) = (topic.name for topic in topics)
            return {name: TopicOutcome(name, error=TopicAlreadyExists(f"Topic '{name}' already exists."))}
        except KafkaError as error:
            return {topic.name: TopicOutcome(topic.name, error=error) for topic in topics}
        for topic in topics:
            logger.info("created topic topic=%s partitions=%d", topic.name, len(topic.partitions))
        return {topic.name: TopicOutcome(topic.name, topic, topic_id=topic.topic_id) for topic in topics}

    async def _creation(self, topics: Sequence[Topic]) -> list[Operation]:
        # Kafka may leave settings of a topic whose creation failed.
        stale = await self._store.get_many([znodes.topic_config_path(topic.name) for topic in topics])
        operations: list[Operation] = [self._fence()]
        for topic, config in zip(topics, stale, strict=True):
            operations += _new_topic_nodes(topic, config)
        return operations

    async def _delete_topic(self, wanted: str | Uuid) -> TopicOutcome:
        try:
            topic = self._find(wanted)
            if not self._settings().delete_topic_enable:
                raise TopicDeletionDisabled
            if is_internal(topic.name):
                raise InvalidTopic(f"{topic.name} is internal: all groups or transactions would be lost with it")
            with store_errors_for_clients():
                await self._write_deletion(topic)
        except KafkaError as error:
            return _rejected(wanted, error)
        return TopicOutcome(topic.name, topic, topic_id=topic.topic_id)

    def _find(self, wanted: str | Uuid) -> Topic:
        if isinstance(wanted, str):
            topic = self._image().topics.get(wanted)
            if topic is None:
                raise UnknownTopicOrPartition(f"The topic '{wanted}' does not exist.")
            return topic
        topic = self._image().topic_by_id(wanted)
        if topic is None:
            raise UnknownTopicId
        return topic

    async def _write_deletion(self, topic: Topic) -> None:
        """Write the deletion request. A controller event deletes the replicas, then the topic (R38)."""
        for _ in range(MAX_ATTEMPTS):
            current = await self._reload(topic.name)
            if current is None or current.topic_id != topic.topic_id:
                raise UnknownTopicOrPartition(f"The topic '{topic.name}' does not exist.")
            unchanged = Check(znodes.topic_path(topic.name), current.version)
            try:
                await self._write([self._fence(), unchanged, Create(znodes.delete_topic_path(topic.name))])
            except (NoNode, BadVersion):
                continue
            except NodeExists:  # requested before: this caller waits for the same deletion
                return
            logger.info("requested topic deletion topic=%s", topic.name)
            return
        raise RequestTimedOut(f"the topic '{topic.name}' kept changing")

    async def _create_partitions(self, request: MorePartitions, *, validate_only: bool) -> TopicOutcome:
        try:
            with store_errors_for_clients():
                grown = await self._grow(request, validate_only=validate_only)
        except KafkaError as error:
            return TopicOutcome(request.name, error=error.as_value())
        return TopicOutcome(request.name, grown, topic_id=grown.topic_id)

    async def _grow(self, request: MorePartitions, *, validate_only: bool) -> Topic:
        for _ in range(MAX_ATTEMPTS):
            topic = await self._reload(request.name)
            if is_internal(request.name):
                raise InvalidTopic(f"{request.name} is internal: groups or transactions would change their partitions")
            image = self._image()
            added = decide_more_partitions(request, topic, image, await absent_members(self._store, image))
            assert topic is not None
            if await self._store.exists(znodes.delete_topic_path(request.name)) is not None:
                raise InvalidTopic(f"The topic {request.name} is queued for deletion.")
            grown = replace(topic, partitions=topic.partitions + added, version=topic.version + 1)
            if validate_only or await self._write_partitions(topic, grown):
                return grown
        raise RequestTimedOut(f"the topic '{request.name}' kept changing")

    async def _write_partitions(self, topic: Topic, grown: Topic) -> bool:
        """False if another writer changed the topic in the meantime."""
        assignment = znodes.encode_topic(grown.topic_id, grown.partitions)
        try:
            await self._write([self._fence(), Set(znodes.topic_path(topic.name), assignment, topic.version)])
        except (BadVersion, NoNode):
            return False
        logger.info("created partitions topic=%s partitions=%d", topic.name, len(grown.partitions))
        return True

    async def _reload(self, name: str) -> Topic | None:
        found = await load_topics(self._store, [name])
        return found[0] if found else None

    def _fence(self) -> Check:
        return Check(znodes.CONTROLLER_EPOCH, self._controller_fence.epoch_version)

    async def _write(self, operations: Sequence[Operation]) -> None:
        try:
            await self._store.multi(operations)
        except BadVersion as error:
            if error.path == znodes.CONTROLLER_EPOCH:
                raise NotController("this broker is no longer the controller") from error
            raise


_DASH = 62
"""First six bits of an id whose text begins with a dash."""


def new_topic_id(randomness: Randomness, image: ClusterImage) -> Uuid:
    """Random UUID of version 4. As in Kafka, no id starts with a dash: command lines would take it for an option."""
    while True:
        bits = int.from_bytes(randomness.bytes(16), "big")
        bits = bits & ~(0xF << 76) | (4 << 76)
        bits = bits & ~(0x3 << 62) | (2 << 62)
        topic_id = bits.to_bytes(16, "big")
        if topic_id[0] >> 2 != _DASH and topic_id not in image.topic_names:
            return topic_id


def _batches(topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    batch: list[Topic] = []
    for topic in topics:
        if batch and sum(len(each.partitions) for each in batch) + len(topic.partitions) > MAX_BATCH_PARTITIONS:
            yield batch
            batch = []
        batch.append(topic)
    if batch:
        yield batch


def _new_topic_nodes(topic: Topic, stale_config: Node | None) -> list[Operation]:
    config_path = znodes.topic_config_path(topic.name)
    config = znodes.encode_config(topic.configs)
    return [
        Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions)),
        Create(config_path, config) if stale_config is None else Set(config_path, config, stale_config.version),
    ]


def _rejected(wanted: str | Uuid, error: KafkaError) -> TopicOutcome:
    if isinstance(wanted, str):
        return TopicOutcome(wanted, error=error.as_value())
    return TopicOutcome("", error=error.as_value(), topic_id=wanted)
