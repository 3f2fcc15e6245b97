"""DescribeClientQuotas (API key 48): lists the quotas of users, client ids and addresses that match a filter."""

from collections.abc import Mapping

from tidelog.errors import InvalidRequest, KafkaError, UnsupportedVersion
from tidelog.protocol.messages.describe_client_quotas import (
    DEFAULT,
    EXACT,
    SPECIFIED,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tidelog.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields

ENTITY_TYPES = (USER, CLIENT_ID, IP)


def reject_describe_client_quotas(_: DescribeClientQuotasRequest, error: KafkaError) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(**error_fields(error), entries=None)


async def handle_describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        components = _checked(request.components)
    except KafkaError as error:
        return reject_describe_client_quotas(request, error)
    is_strict = request.strict

    def entry(stored: tuple[QuotaEntity, Mapping[str, float]]) -> EntryData | None:
        return _entry(*stored) if _matches(stored[0], components, is_strict=is_strict) else None

    stored = list(context.services.client_quotas.table.quotas.items())
    entries = await context.services.turns.each(stored, entry)
    return DescribeClientQuotasResponse(error_message=None, entries=[each for each in entries if each is not None])


def _checked(components: list[ComponentData]) -> dict[str, ComponentData]:
    """By entity type. Raises InvalidRequest, UnsupportedVersion."""
    found: dict[str, ComponentData] = {}
    for each in components:
        if not each.entity_type:
            raise InvalidRequest("Invalid empty entity type.")
        if each.entity_type in found:
            raise InvalidRequest(f"Entity type {each.entity_type} cannot appear more than once in the filter.")
        if each.entity_type not in ENTITY_TYPES:
            raise UnsupportedVersion(f"Unsupported entity type {each.entity_type}")
        if each.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise InvalidRequest(f"Unknown match type {each.match_type}")
        if (each.match is None) == (each.match_type == EXACT):
            raise InvalidRequest("An exact match needs a name, and no other match type may have one")
        found[each.entity_type] = each
    if IP in found and len(found) > 1:
        raise InvalidRequest("IP filter component should not be used with user or clientId filter component.")
    return found


def _matches(entity: QuotaEntity, components: Mapping[str, ComponentData], *, is_strict: bool) -> bool:
    parts = entity.parts
    if is_strict and len(parts) != len(components):
        return False
    return all(
        kind in parts and (each.match_type == SPECIFIED or parts[kind] == each.match)
        for kind, each in components.items()
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(kind, name) for kind, name in entity.parts.items()],
        values=[ValueData(key, value) for key, value in quotas.items()],
    )
