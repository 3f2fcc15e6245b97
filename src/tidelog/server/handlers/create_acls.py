"""CreateAcls (API key 30): adds ACLs, each of them or its error; SECURITY_DISABLED without an authorizer."""

from tidelog.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.errors import KafkaError, SecurityDisabled
from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields


def reject_create_acls(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(**error_fields(error))] * len(request.creations))


async def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    bindings = await context.services.turns.each(request.creations, _binding)
    acls = context.services.acls
    if acls is None:
        return reject_create_acls(request, SecurityDisabled())
    try:
        outcomes = await acls.create(bindings, str(context.session.principal))
    except KafkaError as error:
        return reject_create_acls(request, error)
    return CreateAclsResponse(results=[AclCreationResult(**error_fields(error)) for error in outcomes])


def _binding(creation: AclCreation) -> AclBinding:
    """Raises MalformedMessage: like Kafka, codes that do not exist make the whole request invalid."""
    pattern = ResourcePattern(
        ResourceType(creation.resource_type), creation.resource_name, PatternType(creation.resource_pattern_type)
    )
    entry = AclEntry(
        creation.principal, creation.host, Operation(creation.operation), Permission(creation.permission_type)
    )
    if not (pattern.type and pattern.pattern_type and entry.operation and entry.permission):
        raise MalformedMessage("CreateAcls contains unknown elements")
    return AclBinding(pattern, entry)
