"""ListConfigResources (API key 74): lists topics, brokers, and groups with configs of their own."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from tidelog.errors import NO_ERROR, UnsupportedVersion
from tidelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog.server.dispatch import RequestContext


class ListedType(IntEnum):
    """Resource types by their number in the request, in the order of Kafka's response."""

    GROUP = 32
    CLIENT_METRICS = 16
    BROKER_LOGGER = 8
    BROKER = 4
    TOPIC = 2


FIRST_VERSION_TYPES = (ListedType.CLIENT_METRICS,)
"""Version 0 has no filter and lists client metrics only."""


def handle_list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    known = FIRST_VERSION_TYPES if context.version == 0 else tuple(ListedType)
    requested = set(request.resource_types) or set(known)
    if not requested <= set(known):
        return ListConfigResourcesResponse(error_code=UnsupportedVersion.code)
    names = _names_by_type(context)
    resources = [ConfigResource(name, kind) for kind in known if kind in requested for name in names[kind]]
    return ListConfigResourcesResponse(error_code=NO_ERROR, config_resources=resources)


def _names_by_type(context: RequestContext) -> Mapping[ListedType, Iterable[str]]:
    image = context.services.cluster.image
    return {
        ListedType.GROUP: image.group_configs,
        ListedType.CLIENT_METRICS: (),
        ListedType.BROKER_LOGGER: (),
        ListedType.BROKER: [str(broker_id) for broker_id in sorted(image.brokers)],
        ListedType.TOPIC: image.topics,
    }
