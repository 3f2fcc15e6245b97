"""DeleteAcls (API key 31): deletes the ACLs that match filters; SECURITY_DISABLED without an authorizer."""

from tidelog.authorization.acls import AclBinding
from tidelog.errors import KafkaError, SecurityDisabled
from tidelog.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tidelog.server.acl_filters import acl_filter
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


def reject_delete_acls(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(**error_fields(error))] * len(request.filters))


async def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    turns = context.services.turns
    filters = await turns.each(request.filters, acl_filter)
    acls = context.services.acls
    if acls is None:
        return reject_delete_acls(request, SecurityDisabled())
    try:
        deleted = await acls.delete(filters, str(context.session.principal), turns)
    except KafkaError as error:
        return reject_delete_acls(request, error)
    return DeleteAclsResponse(filter_results=await turns.each(deleted, _result))


def _result(deleted: list[AclBinding]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_message=None, matching_acls=list(map(_matching, deleted)))


def _matching(binding: AclBinding) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
