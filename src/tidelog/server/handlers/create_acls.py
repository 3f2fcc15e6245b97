"""CreateAcls (API key 30): refused with SECURITY_DISABLED, as in Kafka without an authorizer."""

from tidelog.errors import SecurityDisabled
from tidelog.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


async def handle_create_acls(request: CreateAclsRequest, _: RequestContext) -> CreateAclsResponse:
    rejected = AclCreationResult(**error_fields(SecurityDisabled()))
    return CreateAclsResponse(results=[rejected] * len(request.creations))
