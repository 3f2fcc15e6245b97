"""Progress of a stream, published as committed offsets of a consumer group, so that its lag can be monitored."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from tidelog.client.admin.group_admin import GroupAdmin
from tidelog.client.network.in_flight import ConnectionLost
from tidelog.client.network.retries import GaveUp, reason_of
from tidelog.errors import KafkaError
from tidelog.spark import client_thread
from tidelog.spark.offset_json import Offsets, from_dict
from tidelog.spark.options.query import ReadOptions

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
FINAL_COMMIT_S = 2.0


class PublishedProgress:
    """Best effort: a query never waits for the commit, and continues if it fails."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._group_id = options.client.group_id
        self._reached: Offsets = {}
        self._attempted: Offsets = {}
        """Position of the last commit, successful or not. A failed one is not repeated: the next batch commits."""
        self._publishing = asyncio.Lock()
        self._trouble = ""

    def publish(self, position: Mapping[str, Any]) -> None:
        """Records before this position are processed."""
        if self._group_id is None:
            return
        reached = from_dict(position).offsets
        if reached != self._reached:
            self._reached = reached
            client_thread.start(self._publish(self._group_id))

    def finish(self) -> None:
        if self._group_id is not None and self._reached != self._attempted:
            client_thread.run(self._finish(self._group_id))

    async def _finish(self, group_id: str) -> None:
        try:
            await asyncio.wait_for(self._publish(group_id), FINAL_COMMIT_S)
        except TimeoutError:
            logger.warning("final progress not published group=%s", group_id)

    async def _publish(self, group_id: str) -> None:
        """One commit at a time, with the latest position; superseded calls return at once."""
        async with self._publishing:
            reached = self._reached
            if reached == self._attempted:
                return
            cluster = client_thread.cluster_for(self._options.bootstrap, self._options.client)
            try:
                await GroupAdmin(cluster, timeout_s=TIMEOUT_S).commit(group_id, reached)
            except (KafkaError, ConnectionLost, GaveUp) as error:
                self._warn_once(group_id, reason_of(error) or type(error).__name__)
            else:
                self._trouble = ""
            self._attempted = reached

    def _warn_once(self, group_id: str, reason: str) -> None:
        if reason != self._trouble:
            logger.warning("progress not published group=%s reason=%s", group_id, reason)
        self._trouble = reason
