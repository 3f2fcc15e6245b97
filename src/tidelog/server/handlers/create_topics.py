"""CreateTopics: make topics, with defaults where the client leaves the choice to the cluster."""

from tidelog.config.resolution import describe_topic
from tidelog.controller.topic_rules import NewTopic
from tidelog.controller.topics import TopicOutcome
from tidelog.errors import NO_ERROR
from tidelog.protocol.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.server.answers import error_fields
from tidelog.server.dispatch import Call


async def handle_create_topics(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    wanted = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments],
            {config.name: config.value for config in topic.configs},
        )
        for topic in request.topics
    ]
    outcomes = await call.services.create_topics(wanted, validate_only=request.validate_only)
    return CreateTopicsResponse(topics=[_result(outcome, call) for outcome in outcomes])


def _result(outcome: TopicOutcome, call: Call) -> CreatableTopicResult:
    if outcome.topic is None:
        # Null settings would mean that the client may not see them.
        return CreatableTopicResult(name=outcome.name, configs=[], **error_fields(outcome.error))
    topic, cluster = outcome.topic, call.services.cluster
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=NO_ERROR,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=setting.name,
                value=topic.configs.get(setting.name, setting.value),
                read_only=setting.is_read_only,
                config_source=setting.source,
                is_sensitive=setting.is_sensitive,
            )
            for setting in describe_topic(cluster.static_settings, cluster.dynamic_configs, topic.configs)
        ],
    )
