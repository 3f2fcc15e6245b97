"""SCRAM credentials of users: cached from the store, and changed there (ScramCredential in `/config/users`)."""

from collections import Counter
from collections.abc import Mapping

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
        """Those of most users: a user who does not exist must not stand out."""
        counts = Counter(found[mechanism].iterations for found in self._by_user.values() if mechanism in found)
        return max(counts, key=lambda each: (counts[each], each), default=DEFAULT_ITERATIONS)

    @property
    def users(self) -> list[str]:
        return sorted(self._by_user)

    def apply(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Take over the configs of users. Other settings of users, such as quotas, are not looked at."""
        for user, found in configs.items():
            credentials = {}
            for mechanism in SCRAM_MECHANISMS:
                if mechanism in found:
                    try:
                        credentials[mechanism] = ScramCredential.from_text(found[mechanism])
                    except ValueError:
                        continue
            if credentials:
                self._by_user[user] = credentials
            else:
                self._by_user.pop(user, None)
