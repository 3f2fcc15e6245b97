"""DeleteAcls: refused as Kafka does without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from tidelog.server.dispatch import Call
from tidelog.server.response_fields import error_fields


async def handle_delete_acls(request: DeleteAclsRequest, _: Call) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(**error_fields(SecurityDisabled()))
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
