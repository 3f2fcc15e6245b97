"""CreatePartitions, through the wire protocol."""

import pytest

from tests.server.harness import Client, Harness, with_broker
from tests.server.test_create_topics import directories
from tidelog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    KafkaError,
    UnknownTopicOrPartition,
)
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidelog.runtime.virtual_time import run_virtually

VERSIONS = range(4)


def more(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


async def grow(
    client: Client, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return (await client.ask(request, version, CreatePartitionsResponse)).results


@pytest.mark.parametrize("version", VERSIONS)
def test_new_partitions_can_be_written_at_once(version: int) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", max_message_bytes="200")
        await client.produce("t", b"kept")
        (result,) = await grow(client, more("t", 3), version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert directories(harness) == {"t-0", "t-1", "t-2"}
        assert (await client.produce("t", b"x", partition=2)).error_code == 0
        assert (await client.produce("t", b"x" * 300, partition=2)).error_code != 0
        assert await client.values("t") == [b"kept"]

    with_broker(scenario)


def test_the_topics_of_coordinators_keep_their_partitions() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_internal_topic("__consumer_offsets")
        assert [result.error_code for result in await grow(client, more("__consumer_offsets", 60))] == [
            InvalidTopic.code
        ]
        assert len(directories(harness)) == 50

    with_broker(scenario)


def test_validating_changes_nothing() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert [result.error_code for result in await grow(client, more("t", 3), validate_only=True)] == [0]
        assert directories(harness) == {"t-0"}

    with_broker(scenario)


def test_replicas_can_be_assigned() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t")
        assert [result.error_code for result in await grow(client, more("t", 3, [[0], [0]]))] == [0]
        assert directories(harness) == {"t-0", "t-1", "t-2"}

    with_broker(scenario)


REJECTED: list[tuple[CreatePartitionsTopic, type[KafkaError]]] = [
    (more("missing", 2), UnknownTopicOrPartition),
    (more("a b", 2), UnknownTopicOrPartition),
    (more("t", 2), InvalidPartitions),
    (more("t", 1), InvalidPartitions),
    (more("t", 0), InvalidPartitions),
    (more("t", -1), InvalidPartitions),
    (more("t", 2**31 - 1), InvalidPartitions),
    (more("t", 3, []), InvalidReplicaAssignment),
    (more("t", 3, [[0], [0]]), InvalidReplicaAssignment),
    (more("t", 3, [[]]), InvalidReplicaAssignment),
    (more("t", 3, [[9]]), InvalidReplicaAssignment),
    (more("t", 3, [[0, 0]]), InvalidReplicaAssignment),
]


@pytest.mark.parametrize(("wanted", "error"), REJECTED, ids=lambda found: getattr(found, "__name__", ""))
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_refused_request_changes_nothing(
    wanted: CreatePartitionsTopic, error: type[KafkaError], validate_only: bool
) -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("t", partitions=2)
        (result,) = await grow(client, wanted, validate_only=validate_only)
        assert result.error_code == error.code
        assert result.error_message
        assert directories(harness) == {"t-0", "t-1"}

    with_broker(scenario)


def test_a_topic_that_comes_twice_is_refused_and_the_others_grow() -> None:
    async def scenario(harness: Harness, client: Client) -> None:
        await client.create_topic("a")
        await client.create_topic("b")
        results = await grow(client, more("a", 2), more("b", 2), more("a", 3))
        assert {result.name: result.error_code for result in results} == {"a": InvalidRequest.code, "b": 0}
        assert directories(harness) == {"a-0", "b-0", "b-1"}

    with_broker(scenario)


def test_new_partitions_survive_a_restart() -> None:
    async def main() -> None:
        harness = Harness()
        async with harness.broker():
            client = await harness.connect()
            await client.create_topic("t")
            await grow(client, more("t", 2))
            await client.produce("t", b"x", partition=1)
        async with harness.broker():
            assert await (await harness.connect()).values("t", partition=1) == [b"x"]

    run_virtually(main())
