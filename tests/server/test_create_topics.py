"""CreateTopics, through the wire protocol: what is created, returned and refused."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tidelog.config.resolution import ConfigSource
from tidelog.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
)
from tidelog.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidelog.runtime.virtual_time import run_virtually
from tidelog.server.handlers.create_topics import MAX_TOPICS_WITH_SETTINGS, create_topics_of_brokers
from tidelog.types import ZERO_UUID

VERSIONS = range(2, 8)


def topic(
    name: str = "t",
    partitions: int = 1,
    factor: int = 1,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


async def create(
    client: Client, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return (await client.ask(request, version, CreateTopicsResponse)).topics


async def topic_names(client: Client) -> list[str | None]:
    response = await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
    return [found.name for found in response.topics]


def directories(harness: Harness) -> set[str]:
    return {entry.name for entry in harness.disk.list_directory("/logs") if entry.is_directory}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_creates_and_reports_what_it_knows(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        (result,) = await create(client, topic(partitions=2, configs={"retention.ms": "1000"}), version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert (result.topic_id != ZERO_UUID) == (version >= 7)
        assert (result.num_partitions, result.replication_factor) == ((2, 1) if version >= 5 else (-1, -1))
        if version >= 5:
            configs = {config.name: (config.value, config.config_source) for config in result.configs or []}
            assert configs["retention.ms"] == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
            assert configs["segment.bytes"] == ("1073741824", ConfigSource.DEFAULT_CONFIG)
        assert directories(harness) == {"t-0", "t-1"}
        assert (await client.produce("t", b"x", partition=1)).error_code == 0

    with_broker(scenario)


def test_minus_one_takes_the_defaults_of_the_broker() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        (result,) = await create(client, topic(partitions=-1, factor=-1))
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert directories(harness) == {"t-0", "t-1", "t-2"}

    with_broker(scenario, num_partitions=3)


def test_a_client_may_assign_the_replicas() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        (result,) = await create(client, topic(partitions=-1, factor=-1, assignments={1: [0], 0: [0]}))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)

    with_broker(scenario)


def test_validating_answers_the_same_and_creates_nothing() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        (result,) = await create(client, topic(partitions=2), validate_only=True)
        assert (result.error_code, result.num_partitions) == (0, 2)
        (rejected,) = await create(client, topic(partitions=0), validate_only=True)
        assert rejected.error_code == InvalidPartitions.code
        assert await topic_names(client) == []
        assert directories(harness) == set()

    with_broker(scenario)


REJECTED: list[tuple[CreatableTopic, type[KafkaError]]] = [
    (topic(""), InvalidTopic),
    (topic(".."), InvalidTopic),
    (topic("a b"), InvalidTopic),
    (topic("x" * 250), InvalidTopic),
    (topic("old"), TopicAlreadyExists),
    (topic("old_topic"), InvalidTopic),
    (topic(partitions=0), InvalidPartitions),
    (topic(partitions=-2), InvalidPartitions),
    (topic(partitions=10_001), PolicyViolation),
    (topic(factor=0), InvalidReplicationFactor),
    (topic(factor=-2), InvalidReplicationFactor),
    (topic(factor=2), InvalidReplicationFactor),
    (topic(partitions=2, factor=-1, assignments={0: [0]}), InvalidRequest),
    (topic(partitions=-1, factor=1, assignments={0: [0]}), InvalidRequest),
    (topic(partitions=-1, factor=-1, assignments={1: [0]}), InvalidReplicaAssignment),
    (topic(partitions=-1, factor=-1, assignments={0: [0], 2: [0]}), InvalidReplicaAssignment),
    (topic(partitions=-1, factor=-1, assignments={0: []}), InvalidReplicaAssignment),
    (topic(partitions=-1, factor=-1, assignments={0: [9]}), InvalidReplicaAssignment),
    (topic(partitions=-1, factor=-1, assignments={0: [0, 0]}), InvalidReplicaAssignment),
    (topic(configs={"nope": "1"}), InvalidConfig),
    (topic(configs={"retention.ms": "soon"}), InvalidConfig),
    (topic(configs={"retention.ms": None}), InvalidConfig),
    (topic(configs={"cleanup.policy": "burn"}), InvalidConfig),
    (topic(configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}), InvalidConfig),
]


@pytest.mark.parametrize(("wanted", "error"), REJECTED, ids=lambda found: getattr(found, "__name__", ""))
def test_a_refused_topic_has_its_error_and_leaves_nothing(wanted: CreatableTopic, error: type[KafkaError]) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("old")
        await client.create_topic("old.topic")
        nodes = dict(harness.store_state.nodes)
        (result,) = await create(client, wanted)
        assert result.error_code == error.code
        assert result.error_message
        assert (result.topic_id, result.num_partitions, result.configs) == (ZERO_UUID, -1, [])
        assert await topic_names(client) == ["old", "old.topic"]
        assert directories(harness) == {"old-0", "old.topic-0"}
        assert harness.store_state.nodes == nodes

    with_broker(scenario)


def test_a_name_that_comes_twice_is_refused_once_and_the_others_are_created() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        results = await create(client, topic("a"), topic("b"), topic("a", partitions=0), topic("c", factor=5))
        assert {result.name: result.error_code for result in results} == {
            "a": InvalidRequest.code,
            "b": 0,
            "c": InvalidReplicationFactor.code,
        }
        assert len(results) == 3
        assert await topic_names(client) == ["b"]

    with_broker(scenario)


def test_too_many_partitions_in_all_refuse_the_whole_request() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        results = await create(client, topic("a", partitions=6000), topic("b", partitions=6000), topic("c"))
        assert [result.error_code for result in results] == [PolicyViolation.code] * 3
        assert await topic_names(client) == []

    with_broker(scenario)


def test_topics_and_their_settings_survive_a_restart() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            (result,) = await create(client, topic(partitions=2, configs={"max.message.bytes": "100"}))
            assert (await client.produce("t", b"small")).error_code == 0
        async with harness.broker():
            client = await harness.connect()
            response = await client.ask(MetadataRequest(topics=None), 12, MetadataResponse)
            assert [(found.name, found.topic_id) for found in response.topics] == [("t", result.topic_id)]
            assert (await client.produce("t", b"x" * 200)).error_code != 0
            assert await client.values("t") == [b"small"]

    run_virtually(main())


INTERNAL = ["__consumer_offsets", "__transaction_state", "__share_group_state"]


@pytest.mark.parametrize("version", VERSIONS)
def test_nobody_creates_internal_topics_by_hand(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for name in (*INTERNAL, "__cluster_metadata"):
            for validate_only in (False, True):
                (result,) = await create(client, topic(name), version=version, validate_only=validate_only)
                assert (result.name, result.error_code) == (name, InvalidRequest.code)
                assert result.error_message == f"Creation of internal topic {name} is prohibited."
        results = await create(client, topic("__consumer_offsets"), topic("t"), topic("__cluster_metadata"))
        assert {result.name: result.error_code for result in results} == {
            "__consumer_offsets": InvalidRequest.code,
            "t": 0,
            "__cluster_metadata": InvalidRequest.code,
        }
        assert await topic_names(client) == ["t"]

    with_broker(scenario)


def test_an_internal_topic_that_is_there_already_exists() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_internal_topic("__consumer_offsets")
        (result,) = await create(client, topic("__consumer_offsets"))
        assert result.error_code == TopicAlreadyExists.code

    with_broker(scenario)


def test_asking_for_an_internal_topic_that_nobody_needs_does_not_create_it() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        for name in ("__share_group_state", "__cluster_metadata"):
            await client.create_internal_topic(name)
        assert await topic_names(client) == []

    with_broker(scenario)


HALF = MAX_TOPICS_WITH_SETTINGS // 2


def test_answers_about_very_many_topics_have_their_settings() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        topics = [topic(f"t{number}", configs={"retention.ms": str(number)}) for number in range(HALF)]
        topics += [topic(f"u{number}") for number in range(HALF)]
        request = CreateTopicsRequest(topics=topics, validate_only=True)
        response = await client.ask(request, 7, CreateTopicsResponse)
        assert [result.name for result in response.topics] == [wanted.name for wanted in topics]
        returned = [{config.name: config for config in result.configs or ()} for result in response.topics]
        assert len({frozenset(configs) for configs in returned}) == 1
        assert [configs["retention.ms"].value for configs in returned[:HALF]] == [str(number) for number in range(HALF)]
        assert {configs["retention.ms"].config_source for configs in returned[:HALF]} == {1}
        assert {configs["retention.ms"].config_source for configs in returned[HALF:]} == {5}
        assert {configs["segment.bytes"].config_source for configs in returned} == {5}

    with_broker(scenario)


def test_answers_about_even_more_topics_leave_their_settings_out() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        topics = [topic(f"t{number}") for number in range(MAX_TOPICS_WITH_SETTINGS + 1)]
        response = await client.ask(CreateTopicsRequest(topics=topics, validate_only=True), 7, CreateTopicsResponse)
        assert {bool(result.configs) for result in response.topics} == {False}
        assert {result.error_code for result in response.topics} == {0}

    with_broker(scenario)


def test_a_broker_that_creates_topics_itself_gets_no_settings() -> None:
    async def main() -> None:
        async with Harness().broker() as broker:
            request = CreateTopicsRequest(topics=[topic("t")], timeout_ms=10_000)
            response = await create_topics_of_brokers(request, broker._services)
            assert [(result.error_code, result.configs) for result in response.topics] == [(0, [])]

    run_virtually(main())


def test_who_creates_internal_topics_does_not_depend_on_what_clients_call_themselves() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        stranger = await harness.connect("tidelog-broker-to-controller-1")
        (result,) = await create(stranger, topic("__consumer_offsets", partitions=1))
        assert result.error_code == InvalidRequest.code
        for broker_epoch in (-1, 0, 1):
            request = CreateTopicsRequest(topics=[topic("__transaction_state")], broker_id=0, broker_epoch=broker_epoch)
            (result,) = (await stranger.ask(request, 7, CreateTopicsResponse)).topics
            assert result.error_code == InvalidRequest.code
        assert await topic_names(client) == []

    with_broker(scenario)
