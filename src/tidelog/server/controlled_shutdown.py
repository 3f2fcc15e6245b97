"""Controlled shutdown: before a broker stops, the controller moves its leaders to other brokers (R39)."""

import asyncio
import logging

from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, KafkaError, UnknownServerError
from tidelog.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tidelog.server.cluster_state import ClusterState
from tidelog.server.controller_link import ControllerLink
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

RESPONSE_TIMEOUT_S = 30.0
REACH_TIMEOUT_S = 0.05
"""Short: an unreachable controller will not move leaders in time."""
PROGRESS_PAUSE_S = 0.05
"""Pause between requests while leaders are moving."""


class ControlledShutdown:
    def __init__(self, link: ControllerLink, cluster: ClusterState, broker_id: BrokerId, broker_epoch: int) -> None:
        self._link = link
        self._cluster = cluster
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch

    async def run(self) -> bool:
        """True if this broker leads nothing any more. Gives up if no broker can take over, or no controller answers."""
        settings = self._cluster.settings
        if not settings.controlled_shutdown_enable or self._is_alone:
            return False
        tries_left, remaining_before = settings.controlled_shutdown_max_retries, None
        while tries_left > 0 and not self._is_alone:
            remaining = await self._ask()
            if remaining is None:
                return False
            if remaining == 0:
                logger.info("controlled shutdown: all leaders have moved broker_id=%d", self._broker_id)
                return True
            if remaining_before is None or remaining < remaining_before:
                await asyncio.sleep(PROGRESS_PAUSE_S)
            else:
                tries_left -= 1
                await self._wait_for_others(settings.controlled_shutdown_retry_backoff_ms / 1000)
            remaining_before = remaining
        logger.warning("controlled shutdown: some partitions lose their leader broker_id=%d", self._broker_id)
        return False

    @property
    def _is_alone(self) -> bool:
        return not self._cluster.image.brokers.keys() - {self._broker_id}

    async def _wait_for_others(self, timeout_s: float) -> None:
        """Wait for followers to catch up. If all other brokers leave, there is nothing to wait for."""
        await self._cluster.wait_until(lambda image: self._is_alone, timeout_s)

    async def _ask(self) -> int | None:
        """Number of partitions that this broker still leads; None if the controller cannot or will not move them."""
        request = ControlledShutdownRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch)
        try:
            response = await self._link.ask(
                request, ControlledShutdownResponse, RESPONSE_TIMEOUT_S, reach_timeout_s=REACH_TIMEOUT_S
            )
        except KafkaError as error:
            logger.warning("controlled shutdown: no response from the controller reason=%s", error)
            return None
        if response.error_code != NO_ERROR:
            name = ERRORS_BY_CODE.get(response.error_code, UnknownServerError).__name__
            logger.warning("controlled shutdown: refused by the controller error=%s", name)
            return None
        remaining = [f"{each.topic_name}-{each.partition_index}" for each in response.remaining_partitions]
        if remaining:
            logger.info("controlled shutdown: still leading partitions=%s", ",".join(remaining[:10]))
        return len(remaining)
