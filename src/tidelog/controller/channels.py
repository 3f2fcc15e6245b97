"""Controller channels (R36): one queue and one connection per live broker, retried until the broker is gone."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.client.network.bootstrap import Address
from tidelog.client.network.broker_connection import BrokerConnection
from tidelog.client.network.connection import ConnectionLost
from tidelog.client.network.retries import Backoff
from tidelog.cluster.image import BrokerRegistration
from tidelog.controller.request_batch import WHOLE_CLUSTER
from tidelog.errors import ERRORS_BY_CODE, NO_ERROR, UnknownServerError
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataTopicState
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.network import Network
from tidelog.types import BrokerId

logger = logging.getLogger(__name__)

BACKOFF_S = 0.1
MAX_BACKOFF_S = 5.0
"""Maximum pause between two attempts to send a request that the broker refuses; the first pause is BACKOFF_S."""
REQUEST_TIMEOUT_S = 30.0
"""Without a response for this long, the connection counts as dead and the request is sent again."""


@dataclass(slots=True)
class _QueueItem:
    request: Request
    on_response: Callable[[Response], None] | None


class ControllerChannels:
    """R36. `listener_name` is the inter-broker listener; None selects each broker's first unencrypted one."""

    def __init__(
        self,
        network: Network,
        client_id: str,
        listener_name: str | None = None,
        *,
        backoff_s: float = BACKOFF_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._network = network
        self._client_id = client_id
        self._listener_name = listener_name
        self._backoff_s = backoff_s
        self._request_timeout_s = request_timeout_s
        self._channels: dict[BrokerId, _BrokerChannel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, broker: BrokerRegistration) -> None:
        """Open a channel. If the broker has one already, it restarted: the requests queued before are void."""
        self.remove(broker.id)
        channel = _BrokerChannel(
            self._network,
            broker,
            self._listener_name,
            f"{self._client_id}-to-broker-{broker.id}",
            self._backoff_s,
            self._request_timeout_s,
        )
        self._channels[broker.id] = channel
        channel.task = asyncio.get_running_loop().create_task(channel.run())
        self._tasks.add(channel.task)
        channel.task.add_done_callback(self._tasks.discard)

    def remove(self, broker_id: BrokerId) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.stop()

    def send(
        self, broker_id: BrokerId, request: Request, on_response: Callable[[Response], None] | None = None
    ) -> None:
        """Queue a request. It is retried in order until the broker accepts it, and dropped when the broker is gone.

        A request that is refused as a whole stays at the head of the queue (R43). The refusal may be temporary: a
        broker may not know its own new epoch yet. If it is not, a new registration or a new controller replaces the
        queue. Refusals of single partitions are part of the response.
        """
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.enqueue(request, on_response)

    def waiting_requests(self, broker_id: BrokerId) -> int:
        channel = self._channels.get(broker_id)
        return 0 if channel is None else channel.size

    async def settle(self, timeout_s: float) -> None:
        """Wait, at most `timeout_s`, until every reachable broker has answered the requests queued so far."""
        busy = [channel.is_idle.wait() for channel in self._channels.values() if channel.is_reachable]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*busy)

    async def close(self) -> None:
        for broker_id in list(self._channels):
            self.remove(broker_id)
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _BrokerChannel:
    """Queue of one broker. It holds at most one UpdateMetadata: a newer one is merged with the one that waits."""

    task: "asyncio.Task[None]"

    def __init__(
        self,
        network: Network,
        broker: BrokerRegistration,
        listener_name: str | None,
        client_id: str,
        backoff_s: float,
        request_timeout_s: float,
    ) -> None:
        self._broker_id = broker.id
        self._endpoint = broker.inter_broker_endpoint(listener_name)
        self._connection = BrokerConnection(network, client_id, self._address, connect_timeout_s=request_timeout_s)
        self._backoff_s = backoff_s
        self._request_timeout_s = request_timeout_s
        self._queue: deque[_QueueItem] = deque()
        self._is_sending = False
        self._has_work = asyncio.Event()
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self.is_reachable = True
        self._is_stopped = False

    @property
    def size(self) -> int:
        return len(self._queue) + self._is_sending

    def enqueue(self, request: Request, on_response: Callable[[Response], None] | None) -> None:
        if isinstance(request, UpdateMetadataRequest) and on_response is None:
            request = self._merge_with_queued_metadata(request)
        self._queue.append(_QueueItem(request, on_response))
        self.is_idle.clear()
        self._has_work.set()

    def _merge_with_queued_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataRequest:
        for index, item in enumerate(self._queue):
            if isinstance(item.request, UpdateMetadataRequest) and item.on_response is None:
                del self._queue[index]
                return merged_metadata(item.request, request)
        return request

    def stop(self) -> None:
        self._is_stopped = True
        self.task.cancel()
        self._connection.close("the broker left, or this broker is no longer the controller")

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            while self._queue:
                item = self._queue.popleft()
                self._is_sending = True
                try:
                    await self._deliver(item)
                except Exception:
                    logger.exception("controller failed to process a response broker_id=%d", self._broker_id)
                self._is_sending = False
            self._has_work.clear()
            self.is_idle.set()

    async def _deliver(self, item: _QueueItem) -> None:
        response = await self._send_until_accepted(item.request)
        if item.on_response is not None and not self._is_stopped:
            item.on_response(response)

    async def _send_until_accepted(self, request: Request) -> Response:
        rejections, backoff = 0, Backoff(None, self._backoff_s, MAX_BACKOFF_S)
        while True:
            try:
                response = await self._connection.ask(request, Response, self._request_timeout_s)
            except ConnectionLost as error:
                self._mark_unreachable(error)
                await asyncio.sleep(self._backoff_s)
                continue
            self._mark_reachable()
            error_code: int = getattr(response, "error_code", NO_ERROR)
            if error_code == NO_ERROR:
                return response
            rejections, delay_s = rejections + 1, backoff.next_s()
            self._log_rejection(request, error_code, rejections, delay_s)
            await asyncio.sleep(delay_s)

    def _address(self) -> Address:
        if self._endpoint is None:
            raise ConnectionLost(f"broker {self._broker_id} has no endpoint for other brokers")
        return Address(self._endpoint.host, self._endpoint.port)

    def _mark_unreachable(self, error: Exception) -> None:
        if self.is_reachable:
            logger.warning("controller cannot reach broker, retrying broker_id=%d reason=%s", self._broker_id, error)
        self.is_reachable = False

    def _mark_reachable(self) -> None:
        if not self.is_reachable:
            logger.info("controller reached broker again broker_id=%d", self._broker_id)
        self.is_reachable = True

    def _log_rejection(self, request: Request, error_code: int, rejections: int, delay_s: float) -> None:
        logger.log(
            logging.WARNING if rejections & (rejections - 1) == 0 else logging.DEBUG,  # the 1st, 2nd, 4th, 8th, ...
            "broker refused controller request, retrying broker_id=%d request=%s error=%s refusals=%d retry_in_ms=%d",
            self._broker_id,
            type(request).__name__,
            ERRORS_BY_CODE.get(error_code, UnknownServerError).__name__,
            rejections,
            int(delay_s * 1000),
        )


def merged_metadata(earlier: UpdateMetadataRequest, later: UpdateMetadataRequest) -> UpdateMetadataRequest:
    """One request with the effect of both, sent one after the other."""
    if later.type == WHOLE_CLUSTER:
        return later
    states = {(topic.topic_name, topic.topic_id): topic for topic in earlier.topic_states}
    for topic in later.topic_states:
        key = (topic.topic_name, topic.topic_id)
        previous = states.pop(key, None)
        states[key] = topic if previous is None else _merged_topic(previous, topic)
    return UpdateMetadataRequest(
        controller_id=later.controller_id,
        type=earlier.type,
        controller_epoch=later.controller_epoch,
        broker_epoch=later.broker_epoch,
        topic_states=list(states.values()),
        live_brokers=later.live_brokers,
    )


def _merged_topic(earlier: UpdateMetadataTopicState, later: UpdateMetadataTopicState) -> UpdateMetadataTopicState:
    partitions = {state.partition_index: state for state in earlier.partition_states}
    partitions |= {state.partition_index: state for state in later.partition_states}
    return UpdateMetadataTopicState(later.topic_name, later.topic_id, list(partitions.values()))
