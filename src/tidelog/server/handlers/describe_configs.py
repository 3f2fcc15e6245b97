"""DescribeConfigs (API key 32): describes the configs of topics, brokers and groups, with the source of each value."""

from tidelog.authorization.acls import Operation
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
from tidelog.server import log_levels
from tidelog.server.config_permissions import require_config_permission
from tidelog.server.dispatch import RequestContext
from tidelog.server.services import Services


async def handle_describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Duplicate resources are answered once."""
    requested = {
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ())): each
        for each in request.resources
    }
    results = await context.services.turns.each(requested.values(), lambda each: _describe(each, request, context))
    return DescribeConfigsResponse(results=results)


def _describe(
    requested: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=NO_ERROR,
        error_message="",
        resource_type=requested.resource_type,
        resource_name=requested.resource_name,
    )
    try:
        require_config_permission(Operation.DESCRIBE_CONFIGS, requested.resource_type, requested.resource_name, context)
        settings = _settings_of(requested, context.services)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    keys = frozenset(requested.configuration_keys or ())  # an empty list means all, like null
    result.configs = [_entry(setting, request) for setting in settings if not keys or setting.name in keys]
    return result


def _settings_of(requested: DescribeConfigsResource, services: Services) -> list[DescribedSetting]:
    cluster = services.cluster
    match requested.resource_type:
        case ResourceType.TOPIC:
            check_topic_name(requested.resource_name)
            topic = cluster.image.topics.get(requested.resource_name)
            if topic is None:
                raise UnknownTopicOrPartition(f"The topic '{requested.resource_name}' does not exist.")
            return describe_topic(cluster.static_settings, cluster.dynamic_configs, topic.configs)
        case ResourceType.BROKER if not requested.resource_name:
            return describe_cluster_defaults(cluster.dynamic_configs)
        case ResourceType.BROKER:
            check_broker_name(requested.resource_name, services.membership.broker.id)
            return describe_broker(cluster.static_settings, cluster.dynamic_configs)
        case log_levels.BROKER_LOGGER:
            return log_levels.describe_log_levels(requested.resource_name, services.membership.broker.id)
        case ResourceType.GROUP:
            if not requested.resource_name:
                raise InvalidRequest("Group name must not be empty")
            stored = cluster.image.group_configs.get(requested.resource_name, {})
            return describe_group(cluster.static_settings, cluster.dynamic_configs, stored)
        case _:
            raise InvalidRequest(f"Unsupported resource type {requested.resource_type}")


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
