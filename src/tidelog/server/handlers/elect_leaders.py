"""ElectLeaders (API key 43): triggers preferred or unclean leader elections (KIP-460)."""

from collections import defaultdict
from collections.abc import Mapping

from tidelog.cluster.image import ClusterImage
from tidelog.errors import NO_ERROR, ElectionNotNeeded, InvalidRequest, KafkaError
from tidelog.protocol.messages.elect_leaders import (
    PREFERRED,
    UNCLEAN,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionElectionResult,
    TopicElectionResult,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.forwarding import forward_unless_controller, wait_briefly_until_applied
from tidelog.server.response_fields import error_fields
from tidelog.server.services import Services
from tidelog.types import NO_BROKER, TopicPartition


def reject_elect_leaders(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code, replica_election_results=_results(dict.fromkeys(_named(request) or (), error))
    )


async def handle_elect_leaders(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    services = context.services
    if request.topic_partitions == []:
        return ElectLeadersResponse()
    try:
        if request.election_type not in (PREFERRED, UNCLEAN):
            raise InvalidRequest(f"Unknown election type {request.election_type}")
        response = await forward_unless_controller(
            services, context.client_id, request, ElectLeadersResponse, request.timeout_ms
        )
        if response is None:
            response = await _elect_here(request, services)
    except KafkaError as error:
        return reject_elect_leaders(request, error)
    await _wait_for_new_leaders(request, response, services)
    return response


async def _elect_here(request: ElectLeadersRequest, services: Services) -> ElectLeadersResponse:
    outcomes = await services.membership.controller.elect_leaders(
        _named(request), is_unclean=request.election_type == UNCLEAN
    )
    return ElectLeadersResponse(
        replica_election_results=_results(outcomes, includes_not_needed=request.topic_partitions is not None)
    )


async def _wait_for_new_leaders(
    request: ElectLeadersRequest, response: ElectLeadersResponse, services: Services
) -> None:
    elected = [
        TopicPartition(result.topic, partition.partition_id)
        for result in response.replica_election_results
        for partition in result.partition_result
        if partition.error_code == NO_ERROR
    ]
    is_unclean = request.election_type == UNCLEAN
    await wait_briefly_until_applied(services, lambda image: all(_is_led(image, each, is_unclean) for each in elected))


def _is_led(image: ClusterImage, topic_partition: TopicPartition, is_unclean: bool) -> bool:
    partition = image.partition(topic_partition)
    if partition is None:  # deleted since
        return True
    return partition.leader > NO_BROKER if is_unclean else partition.leader == partition.replicas[0]


def _named(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    return [TopicPartition(topic.topic, index) for topic in request.topic_partitions for index in topic.partitions]


def _results(
    outcomes: Mapping[TopicPartition, KafkaError | None], *, includes_not_needed: bool = True
) -> list[TopicElectionResult]:
    results: dict[str, list[PartitionElectionResult]] = defaultdict(list)
    for (topic, index), error in outcomes.items():
        of_topic = results[topic]
        if includes_not_needed or not isinstance(error, ElectionNotNeeded):
            of_topic.append(PartitionElectionResult(partition_id=index, **error_fields(error)))
    return [TopicElectionResult(topic=topic, partition_result=found) for topic, found in results.items()]
