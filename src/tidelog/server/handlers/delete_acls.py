"""DeleteAcls (API key 31): refused with SECURITY_DISABLED, as in Kafka without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


async def handle_delete_acls(request: DeleteAclsRequest, _: RequestContext) -> DeleteAclsResponse:
    rejected = DeleteAclsFilterResult(**error_fields(SecurityDisabled()))
    return DeleteAclsResponse(filter_results=[rejected] * len(request.filters))
