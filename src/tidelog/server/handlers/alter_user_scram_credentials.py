"""AlterUserScramCredentials (API key 51): set and delete SCRAM credentials of users (KIP-554)."""

import contextlib
from collections import Counter

from tidelog.errors import DuplicateResource, KafkaError, UnacceptableCredential, UnsupportedSaslMechanism
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_TYPES, ScramCredential
from tidelog.server.dispatch import RequestContext
from tidelog.server.response_fields import error_fields
from tidelog.server.scram_administration import UserChange, alter_user
from tidelog.store.interface import StoreError

EMPTY_NAME = "Username must not be empty"
UNKNOWN_MECHANISM = "Unknown SCRAM mechanism"
TOO_FEW, TOO_MANY = "Too few iterations", "Too many iterations"
DUPLICATE = "A user credential cannot be altered twice in the same request"
EMPTY_SALT, EMPTY_PASSWORD = "Empty salt", "Empty salted password"


def reject_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys([each.name for each in request.deletions] + [each.name for each in request.upsertions])
    results = [AlterUserScramCredentialsResult(user=user, **error_fields(error)) for user in users]
    return AlterUserScramCredentialsResponse(results=results)


async def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    services = context.services
    wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    planned = _PlannedChanges(wanted)
    await services.turns.each(wanted, planned.add)
    errors, changes = planned.errors, planned.changes()
    for change in changes:
        await services.turns.yield_turn()
        errors[change.user] = await alter_user(services.membership.store, change, str(context.session.principal))
    if changes:
        with contextlib.suppress(StoreError):
            await services.config_changes.catch_up()
    results = [AlterUserScramCredentialsResult(user=user, **error_fields(error)) for user, error in errors.items()]
    return AlterUserScramCredentialsResponse(results=results)


class _PlannedChanges:
    """Errors of users whose changes are refused, and the changes of the others. A user's first error counts."""

    def __init__(self, wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion]) -> None:
        self.errors: dict[str, KafkaError | None] = {}
        self._credentials: dict[str, dict[str, ScramCredential | None]] = {}
        self._counts = Counter((each.name, each.mechanism) for each in wanted)

    def add(self, each: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
        self.errors.setdefault(each.name, None)
        error = _error(each.name, each.mechanism, self._counts)
        if error is None and isinstance(each, ScramCredentialUpsertion):
            error = _error_of_credential(each)
        if error is not None:
            self.errors[each.name] = self.errors[each.name] or error
            return
        mechanism = SCRAM_TYPES[each.mechanism]
        new = None
        if isinstance(each, ScramCredentialUpsertion):
            new = mechanism.credential(bytes(each.salt), bytes(each.salted_password), each.iterations)
        self._credentials.setdefault(each.name, {})[mechanism.name] = new

    def changes(self) -> list[UserChange]:
        return [UserChange(user, found) for user, found in self._credentials.items() if self.errors[user] is None]


def _error(user: str, mechanism: int, counts: Counter[tuple[str, int]]) -> KafkaError | None:
    if not user:
        return UnacceptableCredential(EMPTY_NAME)
    if mechanism not in SCRAM_TYPES:
        return UnsupportedSaslMechanism(UNKNOWN_MECHANISM)
    if counts[user, mechanism] > 1:
        return DuplicateResource(DUPLICATE)
    return None


def _error_of_credential(upsertion: ScramCredentialUpsertion) -> KafkaError | None:
    if upsertion.iterations < MIN_ITERATIONS:
        return UnacceptableCredential(TOO_FEW)
    if upsertion.iterations > MAX_ITERATIONS:
        return UnacceptableCredential(TOO_MANY)
    if not upsertion.salt:
        return UnacceptableCredential(EMPTY_SALT)
    if not upsertion.salted_password:
        return UnacceptableCredential(EMPTY_PASSWORD)
    return None
