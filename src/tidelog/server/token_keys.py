"""Keys that verify the tokens of OAUTHBEARER, read at the start and again from time to time (RefreshingHttpsJwks)."""

import asyncio
import logging

from tidelog.runtime.workers import Workers
from tidelog.sasl.signed_tokens import NoKeys, SignedTokenValidator, parse_keys

logger = logging.getLogger(__name__)

MIN_INTERVAL_S = 10.0
"""Between two readings that tokens with an unknown key ask for."""


class TokenKeys:
    """The keys of one validator. If they cannot be read again, the earlier ones stay in use."""

    def __init__(self, validator: SignedTokenValidator, url: str, refresh_s: float) -> None:
        self._validator = validator
        self._url = url
        self._refresh_s = max(refresh_s, MIN_INTERVAL_S)

    async def load(self, workers: Workers) -> None:
        """Raises OSError."""
        from tidelog.runtime.url_reading import read_url  # imports urllib.request, which takes 10 ms

        try:
            self._validator.keys = parse_keys(await workers.run(read_url, self._url))
        except NoKeys as error:
            raise OSError(f"{self._url}: {error}") from error
        self._validator.has_unknown_key = False

    async def run(self, workers: Workers) -> None:
        """Background work."""
        waited_s = 0.0
        while True:
            await asyncio.sleep(MIN_INTERVAL_S)
            waited_s += MIN_INTERVAL_S
            if waited_s < self._refresh_s and not self._validator.has_unknown_key:
                continue
            waited_s = 0.0
            try:
                await self.load(workers)
            except OSError as error:
                logger.warning("cannot read the keys of tokens, the earlier ones stay in use reason=%s", error)
