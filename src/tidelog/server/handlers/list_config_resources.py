"""ListConfigResources: topics and brokers, which always have settings, and the groups that have some of their own."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from tidelog.errors import NO_ERROR, UnsupportedVersion
from tidelog.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tidelog.server.dispatch import Call


class ListedType(IntEnum):
    """Numbers as the request carries them, in Kafka's order of answering."""

    GROUP = 32
    CLIENT_METRICS = 16
    BROKER_LOGGER = 8
    BROKER = 4
    TOPIC = 2


FIRST_VERSION_TYPES = (ListedType.CLIENT_METRICS,)
"""What version 0 asks for, without saying so."""


def handle_list_config_resources(request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    known = FIRST_VERSION_TYPES if call.version == 0 else tuple(ListedType)
    wanted = set(request.resource_types) or set(known)
    if not wanted <= set(known):
        return ListConfigResourcesResponse(error_code=UnsupportedVersion.code)
    names = _names_by_type(call)
    resources = [ConfigResource(name, kind) for kind in known if kind in wanted for name in names[kind]]
    return ListConfigResourcesResponse(error_code=NO_ERROR, config_resources=resources)


def _names_by_type(call: Call) -> Mapping[ListedType, Iterable[str]]:
    image = call.services.cluster.image
    return {
        ListedType.GROUP: image.group_configs,
        ListedType.CLIENT_METRICS: (),
        ListedType.BROKER_LOGGER: (),
        ListedType.BROKER: [str(broker_id) for broker_id in sorted(image.brokers)],
        ListedType.TOPIC: image.topics,
    }
