"""Cache of the SCRAM credentials that the store has in `/config/users` (Kafka: CredentialCache)."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from tidelog.sasl.scram import DEFAULT_ITERATIONS, SCRAM_MECHANISMS, ScramCredential


class UserCredentials:
    """Credentials by user and mechanism."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[str, ScramCredential]] = {}

    def get(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._by_user.get(user, {}).get(mechanism)

    def of(self, user: str) -> Mapping[str, ScramCredential]:
        return self._by_user.get(user, {})

    def usual_iterations(self, mechanism: str) -> int:
        """Iterations of most users, for users who do not exist: those must not stand out."""
        counts = Counter(found[mechanism].iterations for found in self._by_user.values() if mechanism in found)
        return max(counts, key=lambda each: (counts[each], each), default=DEFAULT_ITERATIONS)

    @property
    def users(self) -> list[str]:
        return sorted(self._by_user)

    def apply(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the credentials of users by those in their configs. Invalid ones and other configs are ignored."""
        for user, found in configs.items():
            credentials = {}
            for mechanism in SCRAM_MECHANISMS:
                if mechanism in found:
                    with suppress(ValueError):
                        credentials[mechanism] = ScramCredential.from_text(found[mechanism])
            if credentials:
                self._by_user[user] = credentials
            else:
                self._by_user.pop(user, None)
