"""DescribeUserScramCredentials (API key 50): mechanisms and iterations of users (KIP-554)."""

from collections import Counter

from tidelog.errors import DuplicateResource, KafkaError, ResourceNotFound
from tidelog.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidelog.sasl.scram import SCRAM_MECHANISMS
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields
from tidelog.server.user_credentials import UserCredentials


def reject_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """Like Kafka, with one result for each user, without its name."""
    results = [DescribeUserScramCredentialsResult(**error_fields(error)) for _ in request.users or ()]
    return DescribeUserScramCredentialsResponse(**error_fields(error), results=results)


async def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    services = context.services
    await services.config_changes.reload_for(services.user_configs.load)
    credentials = services.credentials
    counts = Counter(each.name for each in request.users) if request.users else Counter(credentials.users)
    results = await services.turns.each(counts.items(), lambda each: _result(*each, credentials))
    return DescribeUserScramCredentialsResponse(results=results)


def _result(user: str, count: int, credentials: UserCredentials) -> DescribeUserScramCredentialsResult:
    found = credentials.of(user)
    error: KafkaError | None = None
    if count > 1:
        error = DuplicateResource(
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    elif not found:
        error = ResourceNotFound(f"Attempt to describe a user credential that does not exist: {user}")
    infos = [
        CredentialInfo(mechanism=SCRAM_MECHANISMS[name].type, iterations=credential.iterations)
        for name, credential in found.items()
    ]
    return DescribeUserScramCredentialsResult(
        user=user, **error_fields(error), credential_infos=infos if error is None else []
    )
