"""Administration of users: SCRAM credentials (KIP-554)."""

import asyncio
from collections.abc import Mapping, Sequence

from tidelog.client.routing.cluster import Cluster
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, KafkaError, UnknownServerError
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from tidelog.runtime.randomness import SystemRandomness
from tidelog.sasl.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, SCRAM_TYPES, new_salt

SALT_BYTES = 17


class UserAdmin:
    """Passwords never leave this process: brokers get keys that are derived from them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list(self) -> dict[str, Mapping[str, int]]:
        """Users, each with the iterations of its mechanisms. Raises KafkaError, ConnectionLost."""
        request = DescribeUserScramCredentialsRequest(users=None)
        response = await self._cluster.ask_any(request, DescribeUserScramCredentialsResponse)
        _check(response.error_code, response.error_message)
        return {
            result.user: {SCRAM_TYPES[each.mechanism].name: each.iterations for each in result.credential_infos}
            for result in response.results
            if result.error_code == NO_ERROR
        }

    async def set_password(
        self, user: str, password: str, mechanisms: Sequence[str], iterations: int = DEFAULT_ITERATIONS
    ) -> None:
        """Add a user, or change its password. Raises KafkaError, ConnectionLost."""
        upsertions = []
        for name in mechanisms:
            mechanism, salt = SCRAM_MECHANISMS[name], new_salt(SystemRandomness().bytes(SALT_BYTES))
            derived = await asyncio.to_thread(mechanism.derive, password, salt, iterations)
            upsertions.append(ScramCredentialUpsertion(user, mechanism.type, iterations, salt, derived))
        await self._alter(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))

    async def remove(self, user: str, mechanisms: Sequence[str]) -> None:
        """Raises KafkaError, ConnectionLost."""
        deletions = [ScramCredentialDeletion(user, SCRAM_MECHANISMS[name].type) for name in mechanisms]
        await self._alter(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]))

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        response = await self._cluster.ask_any(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            _check(result.error_code, result.error_message)


def _check(error_code: int, message: str | None) -> None:
    if error_code != NO_ERROR:
        error: type[KafkaError] = ERRORS_BY_CODE.get(error_code, UnknownServerError)
        raise error(message or "")
