"""Permissions to describe and alter configs: on the topic or group, and for brokers on the cluster."""

from collections.abc import Sequence

from tidelog.authorization import acls
from tidelog.authorization.acls import CLUSTER_NAME, Operation
from tidelog.controller.configs import ConfigChange, ConfigOutcome, ResourceType
from tidelog.errors import ClusterAuthorizationFailed, GroupAuthorizationFailed, KafkaError, TopicAuthorizationFailed
from tidelog.server.dispatch import RequestContext

BROKER_LOGGER, CLIENT_METRICS = 8, 16
OF_CLUSTER = (ResourceType.BROKER, BROKER_LOGGER, CLIENT_METRICS)


def require_config_permission(operation: Operation, config_type: int, name: str, context: RequestContext) -> None:
    """Raises the error of the resource. Types that do not exist are refused later."""
    if config_type == ResourceType.TOPIC and context.is_denied(operation, acls.ResourceType.TOPIC, name):
        raise TopicAuthorizationFailed
    if config_type == ResourceType.GROUP and context.is_denied(operation, acls.ResourceType.GROUP, name):
        raise GroupAuthorizationFailed
    if config_type in OF_CLUSTER and context.is_denied(operation, acls.ResourceType.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationFailed


async def alter_permitted(
    changes: Sequence[ConfigChange], context: RequestContext, *, validate_only: bool
) -> list[ConfigOutcome]:
    """One outcome per change, in order."""
    errors: dict[int, KafkaError] = {}
    if context.services.authorizer is not None:
        for index, change in enumerate(changes):
            try:
                require_config_permission(Operation.ALTER_CONFIGS, change.resource_type, change.resource_name, context)
            except KafkaError as error:
                errors[index] = error.as_value()
    permitted = [change for index, change in enumerate(changes) if index not in errors]
    altered = iter(await context.services.alter_configs(permitted, validate_only=validate_only) if permitted else ())
    return [
        ConfigOutcome(change.resource_type, change.resource_name, {}, errors[index])
        if index in errors
        else next(altered)
        for index, change in enumerate(changes)
    ]
