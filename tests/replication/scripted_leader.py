"""A leader reduced to what followers ask it, over the network in memory, that a test can steer."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.storage.logs import append, new_log
from tidelog.errors import FetchSessionIdNotFound, OffsetOutOfRange, UnknownTopicOrPartition
from tidelog.protocol.apis import API_KEYS
from tidelog.protocol.codec import decode, encode
from tidelog.protocol.header import read_request_header, response_header
from tidelog.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from tidelog.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEndResponse
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.protocol.structs import Request, Response
from tidelog.replication.assignment import LeaderAddress
from tidelog.runtime.memory_network import MemoryNetwork
from tidelog.runtime.network import Channel, Listener
from tidelog.storage.log import Log
from tidelog.types import Uuid

HOST = "127.0.0.1"


def topic_id_of(topic: str) -> Uuid:
    return topic.encode().ljust(16, b"-")[:16]


@dataclass
class LedPartition:
    log: Log
    leader_epoch: int
    error_code: int = 0
    """What every question about it is answered with."""
    reports_divergence: bool = True


@dataclass
class Session:
    wanted: dict[tuple[str, int], FetchPartition] = field(default_factory=dict)
    sent: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    epoch: int = 1


class ScriptedLeader:
    def __init__(self, network: MemoryNetwork, broker_id: int = 1) -> None:
        self._network = network
        self._listener: Listener | None = None
        self.address = LeaderAddress(broker_id, HOST, 0)
        self.partitions: dict[tuple[str, int], LedPartition] = {}
        self.sessions: dict[int, Session] = {}
        self.connections: list[LeaderConnection] = []
        self.requests: list[Request] = []
        self.partitions_read = 0
        self.is_mute = False
        self.answers_held_fetch = True
        """A further fetch of the session ends the wait of the one before, as brokers of ours do."""
        self.answers_epoch_ends = True
        """False: it says that every epoch ends where the follower's does."""
        self.keeps_sessions = True
        self.fetch_version = 18
        self.on_request: Callable[[Request], None] | None = None

    async def start(self) -> None:
        self._listener = await self._network.listen(HOST, self.address.port, self._accept)
        self.address = LeaderAddress(self.address.broker_id, HOST, self._listener.port)
        self._listener.start()

    def _accept(self, channel: Channel) -> "LeaderConnection":
        self.connections.append(LeaderConnection(self, channel))
        return self.connections[-1]

    def stop(self) -> None:
        """As if killed: connections break, nobody listens."""
        assert self._listener is not None
        self._listener.close()
        for connection in self.connections:
            connection.channel.close("killed")
        self.connections = []
        self.sessions = {}

    # ---- what it leads

    def lead(self, topic: str, partition: int = 0, *, leader_epoch: int = 1, log: Log | None = None) -> LedPartition:
        log = log or new_log()
        log.leader_epochs.assign(leader_epoch, log.log_end_offset)
        led = self.partitions[topic, partition] = LedPartition(log, leader_epoch)
        return led

    def append(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """One batch, committed at once."""
        led = self.partitions[topic, partition]
        append(led.log, *values, leader_epoch=led.leader_epoch)
        led.log.raise_high_watermark(led.log.log_end_offset)
        self.changed()

    def changed(self) -> None:
        for connection in list(self.connections):
            connection.look_at_held()

    def fetches(self) -> list[FetchRequest]:
        return [request for request in self.requests if isinstance(request, FetchRequest)]

    # ---- answers

    def answer(self, request: Request) -> Response:
        match request:
            case ApiVersionsRequest():
                apis = [ApiVersion(api.key, api.versions.first, api.versions.last) for api in API_KEYS.values()]
                apis[1].max_version = self.fetch_version
                return ApiVersionsResponse(api_keys=apis)
            case OffsetForLeaderEpochRequest():
                return OffsetForLeaderEpochResponse(topics=list(self._epoch_ends(request)))
            case ListOffsetsRequest():
                return ListOffsetsResponse(topics=list(self._offsets(request)))
        raise AssertionError(request)

    def _error(self, topic: str, index: int, current_leader_epoch: int) -> int:
        led = self.partitions.get((topic, index))
        if led is None:
            return UnknownTopicOrPartition.code
        if led.error_code or current_leader_epoch == led.leader_epoch:
            return led.error_code
        return 74 if current_leader_epoch < led.leader_epoch else 75

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> Iterable[OffsetForLeaderTopicResult]:
        for topic in request.topics:
            responses = []
            for asked in topic.partitions:
                error_code = self._error(topic.topic, asked.partition, asked.current_leader_epoch)
                response = EpochEndResponse(partition=asked.partition, error_code=error_code)
                if not self.answers_epoch_ends:
                    response.leader_epoch, response.end_offset = asked.leader_epoch, 2**40
                elif not error_code:
                    log = self.partitions[topic.topic, asked.partition].log
                    response.leader_epoch, response.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
                responses.append(response)
            yield OffsetForLeaderTopicResult(topic=topic.topic, partitions=responses)

    def _offsets(self, request: ListOffsetsRequest) -> Iterable[ListOffsetsTopicResponse]:
        for topic in request.topics:
            responses = []
            for asked in topic.partitions:
                error_code = self._error(topic.name, asked.partition_index, asked.current_leader_epoch)
                response = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error_code)
                if not error_code:
                    log = self.partitions[topic.name, asked.partition_index].log
                    response.offset = log.log_end_offset if asked.timestamp == -1 else log.log_start_offset
                responses.append(response)
            yield ListOffsetsTopicResponse(name=topic.name, partitions=responses)

    # ---- fetching

    def session_of(self, request: FetchRequest) -> Session | None:
        """None: the session is not known, or the epoch is not the next."""
        if request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            session = Session()
            self.sessions[len(self.requests)] = session
            request.session_id = len(self.requests)
        else:
            found = self.sessions.get(request.session_id)
            if found is None or found.epoch != request.session_epoch:
                return None
            session = found
            session.epoch += 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                session.wanted.pop((self._name(forgotten), index), None)
        for topic in request.topics:
            for wanted in topic.partitions:
                session.wanted[self._name(topic), wanted.partition] = wanted
        return session

    def _name(self, topic: FetchTopic | ForgottenTopic) -> str:
        names = {topic_id_of(name): name for name, _ in self.partitions}
        return topic.topic or names.get(topic.topic_id, topic.topic_id.decode())

    def read(self, request: FetchRequest, session: Session) -> FetchResponse:
        topics: dict[str, FetchableTopicResponse] = {}
        for (topic, index), wanted in session.wanted.items():
            data = self._read(topic, index, wanted)
            seen = (data.high_watermark, data.log_start_offset)
            is_news = self.keeps_sessions and session.sent.get((topic, index)) != seen
            if data.records or data.error_code or data.diverging_epoch or is_news:
                session.sent[topic, index] = seen
                topics.setdefault(
                    topic, FetchableTopicResponse(topic=topic, topic_id=topic_id_of(topic), partitions=[])
                ).partitions.append(data)
        session_id = request.session_id if self.keeps_sessions else 0
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _read(self, topic: str, index: int, wanted: FetchPartition) -> PartitionData:
        self.partitions_read += 1
        error_code = self._error(topic, index, wanted.current_leader_epoch)
        data = PartitionData(partition_index=index, error_code=error_code, high_watermark=-1, records=b"")
        if error_code:
            return data
        led = self.partitions[topic, index]
        log = led.log
        data.high_watermark, data.log_start_offset = log.high_watermark, log.log_start_offset
        if led.reports_divergence:
            try:
                diverging = log.leader_epochs.diverging_epoch(
                    wanted.last_fetched_epoch, wanted.fetch_offset, log.log_end_offset
                )
            except OffsetOutOfRange as error:
                data.error_code = error.code
                return data
            if diverging is not None:
                data.diverging_epoch = EpochEndOffset(*diverging)
                return data
        if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
            data.error_code = 1
            return data
        found = log.read(wanted.fetch_offset, wanted.partition_max_bytes, log.log_end_offset).slice
        data.records = b"" if found is None else bytes(found.read())
        return data


@dataclass
class Held:
    request: FetchRequest
    session: Session
    version: int
    correlation_id: int
    timer: asyncio.TimerHandle


class LeaderConnection:
    """Answers in order; while a fetch is held back, everything behind it waits."""

    def __init__(self, leader: ScriptedLeader, channel: Channel) -> None:
        self._leader = leader
        self.channel = channel
        self._held: Held | None = None
        self._waiting: list[bytes] = []

    def on_frame(self, frame: memoryview) -> None:
        header, position = read_request_header(frame)
        request = decode(API_KEYS[header.api_key].request, header.api_version, bytes(frame[position:]))
        if self._held is not None:
            if isinstance(request, FetchRequest) and self._leader.answers_held_fetch:
                self._answer_held()
            else:
                self._waiting.append(bytes(frame))
                return
        self._leader.requests.append(request)
        if self._leader.on_request is not None:
            self._leader.on_request(request)
        if self._leader.is_mute:
            return
        if isinstance(request, FetchRequest):
            self._fetch(request, header.api_version, header.correlation_id)
        else:
            self._send(header.api_key, header.api_version, header.correlation_id, self._leader.answer(request))

    def _fetch(self, request: FetchRequest, version: int, correlation_id: int) -> None:
        session = self._leader.session_of(request)
        if session is None:
            self._send(1, version, correlation_id, FetchResponse(error_code=FetchSessionIdNotFound.code))
            return
        response = self._leader.read(request, session)
        if request.max_wait_ms <= 0 or response.responses:
            self._send(1, version, correlation_id, response)
        else:
            timer = asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, self._answer_held)
            self._held = Held(request, session, version, correlation_id, timer)

    def look_at_held(self) -> None:
        if self._held is None:
            return
        response = self._leader.read(self._held.request, self._held.session)
        if response.responses:
            self._answer_held(response)

    def _answer_held(self, response: FetchResponse | None = None) -> None:
        held, self._held = self._held, None
        assert held is not None
        held.timer.cancel()
        response = response or self._leader.read(held.request, held.session)
        self._send(1, held.version, held.correlation_id, response)
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.on_frame(memoryview(frame))

    def _send(self, api_key: int, version: int, correlation_id: int, response: Response) -> None:
        self.channel.send([response_header(api_key, version, correlation_id), encode(response, version)])
        self.channel.flush()

    def on_frames_done(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self, reason: str) -> None:
        if self._held is not None:
            self._held.timer.cancel()
            self._held = None
        if self in self._leader.connections:
            self._leader.connections.remove(self)
