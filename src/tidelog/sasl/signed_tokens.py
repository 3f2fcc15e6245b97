"""Verification of signed JSON web tokens with the keys of their issuer (JWKS), by PyJWT."""

from collections.abc import Mapping
from typing import Any

from tidelog.sasl.oauthbearer import ClaimRules, InvalidToken, ValidToken

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With public keys only: a token signed with a public key as if it were a shared secret must not pass."""
MAX_TOKEN_BYTES = 64 * 1024


_CLAIM_CHECKS = ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")
_ONLY_SIGNATURE: Any = {"verify_signature": True} | {f"verify_{claim}": False for claim in _CLAIM_CHECKS}
"""Claims are checked by `ClaimRules`, against the broker's clock."""


class NoKeys(Exception):
    """The keys of the issuer cannot be used. The message is one sentence for the operator."""


def parse_keys(text: str) -> Mapping[str, Any]:
    """Keys by id. Raises NoKeys."""
    try:
        import jwt
    except ImportError as error:
        raise NoKeys("OAUTHBEARER needs PyJWT: pip install 'tidelog[security]'") from error
    try:
        found = jwt.PyJWKSet.from_json(text)
    except (ValueError, TypeError, AttributeError, LookupError, jwt.PyJWTError) as error:
        raise NoKeys(f"no keys (JWKS) can be read: {error}") from error
    usable = [each for each in found.keys if each.public_key_use in (None, "sig") and each.algorithm_name in ALGORITHMS]
    if not usable:
        raise NoKeys("no key (JWKS) is a public key for signatures")
    return {each.key_id or "": each for each in usable}


class SignedTokenValidator:
    def __init__(self, rules: ClaimRules) -> None:
        self._rules = rules
        self.keys: Mapping[str, Any] = {}
        """By id. Replaced when they are read again."""
        self.has_unknown_key = False
        """A token named a key that is not known: the issuer may have a new one."""

    def validate(self, token: str, now_ms: int) -> ValidToken:
        import jwt

        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidToken("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header.get("kid"))
            claims = jwt.decode(token, key, algorithms=list(ALGORITHMS), options=_ONLY_SIGNATURE)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidToken(f"the token cannot be verified ({type(error).__name__})") from None
        return self._rules.check(claims, now_ms)

    def _key(self, key_id: object) -> Any:
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        found = self.keys.get(key_id) if isinstance(key_id, str) else None
        if found is None:
            self.has_unknown_key = True
            raise InvalidToken("the token was signed by an unknown key")
        return found
