"""AlterClientQuotas (API key 49): sets and removes quotas, each entity for itself."""

from collections import Counter

from tidelog.errors import InvalidRequest, KafkaError
from tidelog.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    EntryData,
)
from tidelog.quotas.entities import QuotaEntity, QuotaMistake, entity_of
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


def reject_alter_client_quotas(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[AlteredEntity(**error_fields(error), entity=entry.entity) for entry in request.entries]
    )


async def handle_alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """An entity that is named twice is answered once, and not changed by its second entry."""
    results: dict[frozenset[tuple[str, str | None]], AlteredEntity] = {}
    for entry in request.entries:
        await context.services.turns.yield_turn()
        key = frozenset((part.entity_type, part.entity_name) for part in entry.entity)
        try:
            if key in results:
                raise InvalidRequest("Ignoring duplicate entity")
            await _alter(entry, context, validate_only=request.validate_only)
        except KafkaError as error:
            results[key] = AlteredEntity(**error_fields(error), entity=entry.entity)
        else:
            results[key] = AlteredEntity(**error_fields(None), entity=entry.entity)
    return AlterClientQuotasResponse(entries=list(results.values()))


async def _alter(entry: EntryData, context: RequestContext, *, validate_only: bool) -> None:
    entity = _entity(entry)
    repeated = [key for key, count in Counter(each.key for each in entry.ops).items() if count > 1]
    if repeated:
        raise InvalidRequest(f"Duplicate quota key {repeated[0]}")
    changes = {each.key: None if each.remove else each.value for each in entry.ops}
    author = str(context.session.principal)
    await context.services.quota_configs.alter(entity, changes, author, validate_only=validate_only)


def _entity(entry: EntryData) -> QuotaEntity:
    kinds = [part.entity_type for part in entry.entity]
    if len(set(kinds)) < len(kinds):
        raise InvalidRequest("Invalid client quota entity, duplicate entity entry")
    try:
        return entity_of({part.entity_type: part.entity_name for part in entry.entity})
    except QuotaMistake as mistake:
        raise InvalidRequest(str(mistake)) from mistake
