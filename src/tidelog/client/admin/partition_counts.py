"""CreatePartitions: more partitions for a topic."""

from tidelog.client.admin.admin import DEFAULT_TIMEOUT_S, Admin
from tidelog.client.network.retries import retried
from tidelog.client.routing.cluster import Cluster
from tidelog.errors import raise_error
from tidelog.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)


async def create_partitions(
    cluster: Cluster, topic: str, count: int, *, validate_only: bool = False, timeout_s: float = DEFAULT_TIMEOUT_S
) -> None:
    """`count` includes the existing partitions. If the response is lost, the topic shows whether it has grown."""
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
        timeout_ms=int(timeout_s * 1000),
        validate_only=validate_only,
    )
    attempted = False

    async def attempt() -> None:
        nonlocal attempted
        if attempted and len((await Admin(cluster).describe_topic(topic)).partitions) >= count:
            return
        attempted = not validate_only
        response = await cluster.ask_controller(request, CreatePartitionsResponse)
        for result in response.results:
            raise_error(result.error_code, message=result.error_message)

    await retried(cluster.attempts(f"adding partitions to {topic}", timeout_s), attempt)
