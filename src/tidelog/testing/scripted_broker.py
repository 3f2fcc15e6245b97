"""Broker whose requests go through a script first, which may answer, delay or drop them."""

import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, cast

from tidelog.errors import KafkaError, RetriableError
from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY
from tidelog.protocol.errors import TooManyElements
from tidelog.protocol.messages.fetch import FetchRequest, FetchTopic
from tidelog.protocol.messages.metadata import MetadataResponse
from tidelog.protocol.messages.produce import ProduceRequest
from tidelog.protocol.record_batch import HEADER_BYTES, read_header
from tidelog.protocol.structs import Request, Response, Struct
from tidelog.runtime.deferred import Deferred, as_deferred, mapped
from tidelog.server.broker import Broker
from tidelog.server.broker_parts import BrokerParts
from tidelog.server.cluster_state import ClusterState
from tidelog.server.connection import Connection
from tidelog.server.dispatch import (
    Dispatcher,
    Outcome,
    RequestContext,
    Route,
    UnsupportedApiVersionsRoute,
    UnsupportedRequest,
)
from tidelog.server.refused_batches import ClientPartition
from tidelog.storage.log_manager import LogManager
from tidelog.store.interface import Store
from tidelog.testing.error_answers import error_response
from tidelog.testing.links import KIT, MachineNetwork
from tidelog.testing.request_parts import TOPIC_ARRAYS, RecordedRequest, as_plain, parts_of, topic_of
from tidelog.testing.request_script import RequestScript, Verdict
from tidelog.types import Uuid

FETCH, METADATA, PRODUCE = 1, 3, 0
CLOSED_BY_SCRIPT = "closed by the script of the test"


class ScriptedBroker(Broker):
    """A broker on a `MachineNetwork`, which has the script."""

    def _wire(self, store: Store, cluster: ClusterState, logs: LogManager) -> BrokerParts:
        parts = super()._wire(store, cluster, logs)
        network = cast("MachineNetwork", self._seams.network)
        self.acceptor.dispatcher = ScriptedDispatcher(parts, network)
        return parts


class ScriptedDispatcher(Dispatcher):
    """Dispatcher with scripted routes."""

    def __init__(self, parts: BrokerParts, network: MachineNetwork) -> None:
        super().__init__(parts.services)
        self._network = network
        self._held: dict[Connection, deque[Callable[[], None]]] = {}

    def _find_route(self, api_key: int, version: int) -> Route:
        api = API_KEYS.get(api_key)
        if api is not None and version in api.versions:
            return ScriptedRoute(api_key, version, self._network, self._held)
        if api_key == API_VERSIONS_KEY:
            return UnsupportedApiVersionsRoute(api_key, 0)
        raise UnsupportedRequest(f"api key {api_key} version {version} is not supported by this broker")


class ScriptedRoute(Route):
    """One version of one API. A request that is late holds up those behind it on its connection, as in a network."""

    __slots__ = ("_held", "_network", "_script")

    def __init__(
        self,
        api_key: int,
        version: int,
        network: MachineNetwork,
        held: dict[Connection, deque[Callable[[], None]]],
    ) -> None:
        super().__init__(api_key, version)
        self._network = network
        self._script: RequestScript = network.wiring.script
        self._held = held

    def start(self, frame: memoryview, position: int, context: RequestContext) -> Outcome:
        sender = self._network.sender_of(context.connection.channel)
        if sender == KIT:
            return super().start(frame, position, context)
        try:
            request, _ = self._decode(frame, position, self._max_elements)
        except TooManyElements:  # decoded by a worker, and neither recorded nor scripted
            return super().start(frame, position, context)
        recorded = self._recorded(request, context, sender)
        verdict = self._script.judge(recorded)
        delay_s = self._network.disk_delay_s if self.api_key in (PRODUCE, FETCH) else 0.0
        if verdict is not None and verdict.rule.kind == "delay":
            delay_s += verdict.rule.delay_s
        if delay_s or context.connection in self._held:
            return self._start_later(bytearray(frame), position, context, verdict, delay_s)
        return self._perform(request, context, verdict)

    def _recorded(self, request: Request, context: RequestContext, sender: int | None) -> RecordedRequest:
        parts = parts_of(request, self.version, partial(_topic_name, context))
        if isinstance(request, FetchRequest) and request.session_id:
            for cached in context.services.fetch_sessions.partitions_of(request.session_id):
                name = cached.topic or _topic_name(context, cached.topic_id)
                if name is not None:
                    parts.partitions.setdefault(name, []).append(cached.request.partition)
        return RecordedRequest(
            self.name,
            self.version,
            context.client_id,
            self._network.broker_id,
            self._network.clock.now_ms(),
            sender,
            tuple(parts.partitions),
            tuple((topic, partition) for topic, found in parts.partitions.items() for partition in found),
            tuple(parts.groups),
            tuple(parts.transactional_ids),
            body=as_plain(request, self.version),
        )

    # ---- late requests

    def _start_later(
        self, frame: bytearray, position: int, context: RequestContext, verdict: Verdict | None, delay_s: float
    ) -> Deferred[Response | None]:
        """In the order of arrival: the delay begins when the request before it has started."""
        connection = context.connection
        answer: Deferred[Response | None] = Deferred()
        queue = self._held.setdefault(connection, deque())

        def perform() -> None:
            if connection.channel.is_closed:  # type: ignore[attr-defined]
                self._held.pop(connection, None)
                return
            # Its own context: the connection counts this request by what it was when it was held.
            own = RequestContext(
                context.services, connection, context.version, context.correlation_id, context.client_id
            )
            try:
                request, _ = self._decode(memoryview(frame), position, self._max_elements)
                _pass_on(self._perform(request, own, verdict), answer)
            except Exception as error:  # noqa: BLE001 - the connection handles it
                answer.fail(error)
            queue.popleft()
            if queue:
                queue[0]()
            else:
                self._held.pop(connection, None)

        def begin() -> None:
            asyncio.get_running_loop().call_later(delay_s, perform)

        queue.append(begin)
        if len(queue) == 1:
            begin()
        return answer

    # ---- what happens to a request

    def _perform(self, request: Request, context: RequestContext, verdict: Verdict | None) -> Outcome:
        if verdict is None or verdict.rule.kind == "delay":
            return self.serve(request, context)
        match verdict.rule.kind:
            case "drop":
                return Deferred()
            case "disconnect":
                context.connection.channel.close(CLOSED_BY_SCRIPT)
                return None
            case "lose_answer":
                return self._lose_answer(request, context)
        assert verdict.error is not None
        return self._fail(request, context, verdict, verdict.error)

    def _lose_answer(self, request: Request, context: RequestContext) -> Outcome:
        """Done, but the client does not learn it: its connection closes instead."""

        def close(_: object) -> None:
            context.connection.channel.close(CLOSED_BY_SCRIPT)

        as_deferred(self.serve(request, context)).listen(close, close)
        return Deferred()

    def _fail(self, request: Request, context: RequestContext, verdict: Verdict, error: type[KafkaError]) -> Outcome:
        if self.api_key == METADATA:
            return _changed(self.serve(request, context), partial(_with_topic_errors, verdict=verdict, error=error))
        if isinstance(request, FetchRequest):
            request = _with_session(request, context)
        failed, rest = _split(request, verdict.rule.filter.topic, verdict.rule.filter.partition, context)
        if isinstance(failed, ProduceRequest) and issubclass(error, RetriableError):
            _add_refused_batches(failed, context, error())
        answer = error_response(self.name, failed, API_KEYS[self.api_key].response, self.version, error)
        if rest is not None:
            return _changed(self.serve(rest, context), partial(_merged, answer))
        return None if isinstance(request, ProduceRequest) and request.acks == 0 else answer


def _topic_name(context: RequestContext, topic_id: Uuid) -> str | None:
    topic = context.services.cluster.image.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _add_refused_batches(request: ProduceRequest, context: RequestContext, error: RetriableError) -> None:
    """As the broker itself: batches in flight behind them get the same error."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and len(data.records) >= HEADER_BYTES:
                requested = ClientPartition.of(topic, data.index)
                context.connection.refused_batches.add(requested, read_header(data.records), error)


def _pass_on(outcome: Outcome, answer: Deferred[Any]) -> None:
    source = as_deferred(outcome)
    answer.on_abandoned = source.abandon
    source.listen(answer.resolve, answer.fail)


def _changed(outcome: Outcome, change: Callable[[Any], Response]) -> Outcome:
    """Without a change if there is no response."""
    return mapped(outcome, lambda response: None if response is None else change(response))


def _with_topic_errors(response: MetadataResponse, verdict: Verdict, error: type[KafkaError]) -> MetadataResponse:
    """Brokers and controller are as they are; the topics have failed."""
    for topic in response.topics:
        if verdict.rule.filter.topic in (None, topic.name):
            topic.error_code, topic.partitions = error.code, []
    return response


# ---- requests that fail in part


def _with_session(request: FetchRequest, context: RequestContext) -> FetchRequest:
    """With the partitions that its session remembers. The failed answer ends the session for the client."""
    if not request.session_id:
        return request
    topics = {(topic.topic, topic.topic_id): copy(topic) for topic in request.topics}
    named = {(key, partition.partition) for key, topic in topics.items() for partition in topic.partitions}
    for cached in context.services.fetch_sessions.partitions_of(request.session_id):
        key = (cached.topic, cached.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=cached.topic, topic_id=cached.topic_id)
        if (key, cached.request.partition) not in named:
            topic.partitions = [*topic.partitions, cached.request]
    whole = copy(request)
    whole.topics = list(topics.values())
    return whole


def _split(
    request: Request, topic: str | None, partition: int | None, context: RequestContext
) -> tuple[Request, Request | None]:
    """The part of the request that fails, and the part that is served; None: there is no such part."""
    field = next((each.name for each in request.__fields__ if each.name in TOPIC_ARRAYS), None)
    if field is None or (topic is None and partition is None):
        return request, None
    failed_topics: list[Struct] = []
    served_topics: list[Struct] = []
    for each in getattr(request, field) or ():
        name = topic_of(each, partial(_topic_name, context))
        failed, served = _split_topic(each, partition) if topic in (None, name) else (None, each)
        failed_topics += [] if failed is None else [failed]
        served_topics += [] if served is None else [served]
    if not failed_topics or not served_topics:
        return request, None
    failed_request, served_request = copy(request), copy(request)
    setattr(failed_request, field, failed_topics)
    setattr(served_request, field, served_topics)
    if isinstance(served_request, FetchRequest):
        # A session of its own would outlive the answer, and a wait would hold up the error.
        served_request.max_wait_ms, served_request.session_id, served_request.session_epoch = 0, 0, -1
    return failed_request, served_request


def _split_topic(topic: Struct, partition: int | None) -> tuple[Struct | None, Struct | None]:
    if partition is None:
        return topic, None
    field = next((each.name for each in topic.__fields__ if each.name.startswith("partition")), None)
    if field is None:
        return topic, None
    elements = getattr(topic, field)
    failed = [each for each in elements if _index(each) == partition]
    served = [each for each in elements if _index(each) != partition]
    return _topic_with(topic, field, failed), _topic_with(topic, field, served)


def _index(partition: Any) -> int:
    if isinstance(partition, int):
        return partition
    index: int = getattr(partition, partition.__fields__[0].name)
    return index


def _topic_with(topic: Struct, field: str, partitions: list[Any]) -> Struct | None:
    if not partitions:
        return None
    part = copy(topic)
    setattr(part, field, partitions)
    return part


def _merged(failed: Response, served: Response) -> Response:
    """The served answer with the failed elements added. The first array of a response holds its topics."""
    for field in failed.__fields__:
        value = getattr(failed, field.name)
        if isinstance(value, list) and value:
            getattr(served, field.name).extend(value)
    return served
