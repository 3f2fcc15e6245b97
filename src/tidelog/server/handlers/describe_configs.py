"""DescribeConfigs: the settings of topics, brokers and groups, and where each value comes from."""

from tidelog.cluster.topic_names import check_topic_name
from tidelog.config.resolution import (
    DescribedSetting,
    describe_broker,
    describe_cluster_defaults,
    describe_group,
    describe_topic,
)
from tidelog.controller.configs import ResourceType, check_broker_name
from tidelog.errors import NO_ERROR, InvalidRequest, KafkaError, UnknownTopicOrPartition
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.server.dispatch import Call
from tidelog.server.services import Services


async def handle_describe_configs(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    """What is asked for several times is answered once."""
    wanted = {
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ())): each
        for each in request.resources
    }
    results = await call.services.turns.each(wanted.values(), lambda each: _describe(each, request, call))
    return DescribeConfigsResponse(results=results)


def _describe(wanted: DescribeConfigsResource, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=NO_ERROR, error_message="", resource_type=wanted.resource_type, resource_name=wanted.resource_name
    )
    try:
        settings = _settings_of(wanted, call.services)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = wanted.configuration_keys  # none of them asks for all, as null does
    result.configs = [_entry(setting, request) for setting in settings if not keys or setting.name in keys]
    return result


def _settings_of(wanted: DescribeConfigsResource, services: Services) -> list[DescribedSetting]:
    cluster = services.cluster
    match wanted.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(wanted.resource_name)
            topic = cluster.image.topics.get(wanted.resource_name)
            if topic is None:
                raise UnknownTopicOrPartition(f"The topic '{wanted.resource_name}' does not exist.")
            return describe_topic(cluster.static_settings, cluster.dynamic_configs, topic.configs)
        case ResourceType.BROKER if not wanted.resource_name:
            return describe_cluster_defaults(cluster.dynamic_configs)
        case ResourceType.BROKER:
            check_broker_name(wanted.resource_name, services.membership.broker.id)
            return describe_broker(cluster.static_settings, cluster.dynamic_configs)
        case ResourceType.GROUP:
            if not wanted.resource_name:
                raise InvalidRequest("Group name must not be empty")
            stored = cluster.image.group_configs.get(wanted.resource_name, {})
            return describe_group(cluster.static_settings, cluster.dynamic_configs, stored)
        case _:
            raise InvalidRequest(f"Unsupported resource type {wanted.resource_type}")


def _entry(setting: DescribedSetting, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.is_read_only,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in setting.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=setting.type,
        documentation=setting.documentation if request.include_documentation else None,
    )
