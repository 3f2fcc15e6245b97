"""Request dispatch: decodes a frame, finds the handler of its API and version, encodes the response (KafkaApis)."""

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from importlib import import_module
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidelog.authorization.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, Operation, ResourceType
from tidelog.errors import ClusterAuthorizationFailed, KafkaError
from tidelog.protocol.apis import API_KEYS, API_VERSIONS_KEY
from tidelog.protocol.codec import decoder, encoder
from tidelog.protocol.errors import TooManyElements
from tidelog.protocol.header import parse_request_header, response_header_writer
from tidelog.protocol.structs import Request, Response
from tidelog.runtime.deferred import Deferred, awaited
from tidelog.runtime.disk import FileSlice
from tidelog.runtime.network import FramePart
from tidelog.runtime.turns import Turns
from tidelog.server.api_permissions import API_PERMISSIONS
from tidelog.server.controller_link import CLIENT_ID_PREFIX
from tidelog.server.request_times import FETCH_CONSUMER, FETCH_FOLLOWER, RequestTimes
from tidelog.server.throttling import Throttling
from tidelog.types import BrokerId

if TYPE_CHECKING:
    from tidelog.server.connection import Connection
    from tidelog.server.control_plane import Sender
    from tidelog.server.services import Services
    from tidelog.server.session import Session

T = TypeVar("T")

Outcome: TypeAlias = Response | Deferred[Any] | None
"""The outcome of a request: a response, a response later, or none (acks=0: the client expects no answer)."""

HandlerOutcome: TypeAlias = "Outcome | CoroutineType[Any, Any, Response | None]"
"""Return type of handlers. `Route.serve` runs a coroutine as a task; its callers see an Outcome only.

Not `Coroutine`, an abstract class: its check calls Python code for every request."""

MAX_ELEMENTS_ON_LOOP = 1024
"""Decoding this many takes a few milliseconds without interruption. Larger requests are decoded by a worker."""

PRODUCE, FETCH = 0, 1
MAX_PRODUCED_ELEMENTS = 4096
"""Produce is always decoded on the event loop, since requests of one connection are appended in order."""

MAX_CLIENT_ELEMENTS = 2**14
"""Maximum elements (topics, partitions, groups) in one request of a client. Above it the connection is closed."""

MAX_TRUSTED_ELEMENTS = 2**22
"""A controller may send the state of all partitions in one request."""

MAX_ELEMENTS = {PRODUCE: MAX_PRODUCED_ELEMENTS, FETCH: 2**16, 27: 2**16}
"""Limits by API key, for APIs that brokers send before they are trusted: Fetch, WriteTxnMarkers."""

OF_CONTROLLERS = frozenset({4, 5, 6})
"""LeaderAndIsr, StopReplica, UpdateMetadata: the first request of a controller is large, and proves who sends it."""


NOBODY: frozenset[str] = frozenset()


class UnsupportedRequest(Exception):
    """An API or version that this broker did not advertise."""


class RequestContext:
    """Context of one request besides its content: connection, API version, client id."""

    __slots__ = (
        "_mutation_throttle_s",
        "client_id",
        "connection",
        "correlation_id",
        "runs_as_task",
        "services",
        "version",
    )

    def __init__(
        self, services: "Services", connection: "Connection", version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.services = services
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.runs_as_task = False
        """The handler is a coroutine. It may run long, and its response may be large."""

    @property
    def session(self) -> "Session":
        return self.connection.session

    @property
    def mutation_throttle_s(self) -> float:
        """For how long the client must pause because it changes too many partitions."""
        return getattr(self, "_mutation_throttle_s", 0.0)

    def accepts_mutations(self, count: int, *, is_strict: bool) -> bool:
        """Whether the client may create or delete so many partitions; it may have to pause after them (KIP-599)."""
        quotas = self.services.client_quotas
        if not quotas.table or self.is_forwarded:
            return True
        is_accepted, throttle_s = quotas.mutate(
            self.connection.session.principal.name,
            self.client_id or "",
            count,
            self.services.clock.monotonic(),
            is_strict=is_strict,
        )
        self._mutation_throttle_s = max(self.mutation_throttle_s, throttle_s)
        return is_accepted

    def is_denied(
        self, operation: Operation, resource: ResourceType, name: str = CLUSTER_NAME, *, is_logged: bool = True
    ) -> bool:
        """Whether the authorizer, if there is one, denies the peer this operation.

        `is_logged`: False for questions whose answer decides nothing that was asked for, such as what to list.
        """
        authorizer = self.services.authorizer
        if authorizer is None:
            return False
        session = self.connection.session
        if authorizer.allows(str(session.principal), session.host, operation, resource, name):
            return False
        if is_logged:
            self.services.audit.denied(session, self.client_id, operation, resource, name)
        return True

    def denied(
        self, operation: Operation, resource: ResourceType, names: Iterable[str], *, is_logged: bool = True
    ) -> frozenset[str]:
        """The names that are denied: none without an authorizer."""
        if self.services.authorizer is None:
            return NOBODY
        return frozenset(
            [name for name in set(names) if self.is_denied(operation, resource, name, is_logged=is_logged)]
        )

    def allows_any(self, operation: Operation, resource: ResourceType) -> bool:
        """Whether the peer may perform the operation on at least one resource of the type."""
        authorizer, session = self.services.authorizer, self.connection.session
        if authorizer is None or authorizer.allows_any(str(session.principal), session.host, operation, resource):
            return True
        self.services.audit.denied(session, self.client_id, operation, resource, "any")
        return False

    def is_denied_cluster(self, *operations: Operation) -> bool:
        """Whether all of these operations on the cluster are denied."""
        return all(self.is_denied(each, ResourceType.CLUSTER, is_logged=each is operations[-1]) for each in operations)

    @property
    def may_be_broker(self) -> bool:
        """On the inter-broker listener, and with the permission of brokers if there is an authorizer."""
        return self.connection.session.is_inter_broker and not self.is_denied(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, is_logged=False
        )

    @property
    def is_forwarded(self) -> bool:
        """Another broker forwards this request: it has checked the permissions of the client."""
        return self.client_id is not None and self.client_id.startswith(CLIENT_ID_PREFIX) and self.may_be_broker

    def authorized_operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the peer may perform, as a bit field (KIP-430)."""
        return sum(
            1 << each
            for each in SUPPORTED_OPERATIONS[resource]
            if not self.is_denied(each, resource, name, is_logged=False)
        )

    def require_inter_broker_listener(self) -> None:
        """Requests of brokers are served only where brokers connect. Raises ClusterAuthorizationFailed."""
        if not self.connection.session.is_inter_broker:
            raise ClusterAuthorizationFailed("requests of brokers are served only on the inter-broker listener")

    def is_from_broker(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Whether a live broker sends this: on the inter-broker listener, with its epoch, which clients never learn.

        An epoch is a number that can be guessed: with an authorizer the permission of brokers is needed as well.
        """
        broker = self.services.cluster.image.brokers.get(broker_id)
        return broker is not None and broker.epoch == broker_epoch >= 0 and self.may_be_broker

    def trust_controller(self, sender: "Sender") -> None:
        """The sender knows the epoch of this broker, which clients never learn."""
        if self.services.control_plane.has_current_broker_epoch(sender):
            self.connection.trust()

    def trust_broker(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        """Whether the connection belongs to a broker: it was proved earlier, or is proved by this epoch."""
        if not self.connection.is_privileged and self.is_from_broker(broker_id, broker_epoch):
            self.connection.trust()
        return self.connection.is_privileged


class Route:
    """One version of one API, with its compiled codec. Created with the first request."""

    __slots__ = (
        "_cluster_operations",
        "_decode",
        "_encode",
        "_handle",
        "_handle_permitted",
        "_max_elements",
        "_reject",
        "_write_header",
        "api_key",
        "follower_times",
        "name",
        "times",
        "version",
    )

    times: RequestTimes
    follower_times: RequestTimes
    """Those of brokers: FetchFollower has its own, other APIs have the same for all. Set by the dispatcher."""

    def __init__(self, api_key: int, version: int) -> None:
        api = API_KEYS[api_key]
        self.api_key = api_key
        self.version = version
        self.name = api.name
        self._decode = decoder(api.request, version)
        self._max_elements = MAX_PRODUCED_ELEMENTS if api_key == PRODUCE else MAX_ELEMENTS_ON_LOOP
        self._encode = encoder(api.response, version)
        self._write_header = response_header_writer(api_key, version)
        name = api.request.__module__.rpartition(".")[2]  # one file per API, named alike in messages and handlers
        handler = import_module(f"tidelog.server.handlers.{name}")
        handle = getattr(handler, f"handle_{name}")
        self._cluster_operations = API_PERMISSIONS[api_key].cluster_operations
        self._reject = getattr(handler, f"reject_{name}", None) or partial(_reject, api.response)
        self._handle = self._handle_if_permitted if self._cluster_operations else handle
        self._handle_permitted = handle

    def start(self, frame: memoryview, position: int, context: RequestContext) -> Outcome:
        """Decode and start a request. Requests of clients with very many elements are decoded by a worker."""
        decode, serve = self._decode, self.serve  # calls of names are faster than calls of attributes
        try:
            request, _ = decode(frame, position, self._max_elements)
        except TooManyElements:
            if not context.connection.is_privileged:
                return self._run(self._start_large(bytes(frame), position, context), context)
            request, _ = decode(frame, position, MAX_TRUSTED_ELEMENTS)
        return serve(request, context)

    def serve(self, request: Request, context: RequestContext) -> Outcome:
        """Start a decoded request."""
        outcome: HandlerOutcome = self._handle(request, context)
        return self._run(outcome, context) if isinstance(outcome, CoroutineType) else outcome

    def _handle_if_permitted(self, request: Request, context: RequestContext) -> HandlerOutcome:
        """For APIs that need a permission on the whole cluster."""
        if context.is_denied_cluster(*self._cluster_operations) and not context.is_forwarded:
            rejected: Response = self._reject(request, ClusterAuthorizationFailed("the principal has no permission"))
            return rejected
        outcome: HandlerOutcome = self._handle_permitted(request, context)
        return outcome

    async def _start_large(self, frame: bytes, position: int, context: RequestContext) -> Response | None:
        limit = MAX_ELEMENTS.get(self.api_key, MAX_CLIENT_ELEMENTS)
        if self.api_key in OF_CONTROLLERS and context.may_be_broker:
            limit = MAX_TRUSTED_ELEMENTS
        request, _ = await context.services.large_messages.run(self._decode, memoryview(frame), position, limit)
        outcome: HandlerOutcome = self._handle(request, context)
        return await awaited(outcome)

    def _run(
        self, coroutine: Coroutine[Any, Any, Response | None], context: RequestContext
    ) -> Deferred[Response | None]:
        context.runs_as_task = True
        if self.api_key == PRODUCE or context.connection.is_privileged:
            return _as_deferred(coroutine)
        return _as_deferred(coroutine, context.services.turns)

    def encode(self, response: Response, context: RequestContext) -> list[FramePart]:
        write_header, encode = self._write_header, self._encode
        parts: list[Any] = [write_header(context.correlation_id)]
        encode(response, parts.append)
        # Only Fetch has parts that must not be copied: large records, and slices of files.
        return parts if self.api_key == FETCH else [b"".join(parts)]

    def encode_in_worker(self, response: Response, context: RequestContext) -> Deferred[list[FramePart]]:
        """Encode a response with very many parts in a worker."""
        return _as_deferred(context.services.large_messages.run(self._encode_joined, response, context))

    def _encode_joined(self, response: Response, context: RequestContext) -> list[FramePart]:
        parts = self.encode(response, context)
        buffers = [part for part in parts if not isinstance(part, FileSlice)]
        return [b"".join(buffers)] if len(buffers) == len(parts) else parts


def _reject(response_type: type[Response], request: Request, error: KafkaError) -> Response:
    """The response to a request that is denied as a whole. Handlers whose response has no error code have their own."""
    response = response_type()
    response.error_code = error.code  # type: ignore[attr-defined]
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response


def _as_deferred(coroutine: Coroutine[Any, Any, T], turns: Turns | None = None) -> Deferred[T]:
    """Run a coroutine as a task, which is cancelled if the Deferred is abandoned. The only such place."""
    deferred: Deferred[T] = Deferred()

    async def run() -> None:
        try:
            if turns is not None:
                await turns.wait()
            value = await coroutine
        except Exception as error:  # noqa: BLE001 - the listener handles it
            deferred.fail(error)
        else:
            deferred.resolve(value)

    task = asyncio.get_running_loop().create_task(run())
    # A task that is cancelled before its first step never starts the coroutine, and Python would warn.
    task.add_done_callback(lambda _: coroutine.close())
    deferred.on_abandoned = partial(_cancel, task)
    return deferred


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


class UnsupportedApiVersionsRoute(Route):
    """ApiVersions in a version newer than ours: answered in version 0 with the supported versions (KIP-511)."""

    def start(self, frame: memoryview, position: int, context: RequestContext) -> Outcome:
        from tidelog.server.handlers.api_versions import unsupported_version_response

        return unsupported_version_response()


class Dispatcher:
    """Finds and caches the route of each API version."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self.turns = services.turns
        self.monotonic = services.clock.monotonic
        self._routes: dict[tuple[int, int], Route] = {}
        self._throttling = Throttling(services.client_quotas, services.clock)
        self.on_quotas_changed()

    def on_quotas_changed(self) -> None:
        """Requests skip throttling while nobody has a quota, and tracing while it is off."""
        self.__dict__.pop("start", None)
        if self._services.client_quotas.table:
            self.__dict__["start"] = partial(self._throttling.start, partial(Dispatcher.start, self))
        if self._services.tracing is not None:
            self.__dict__["start"] = partial(self._services.tracing.start, self.start)

    def start(self, frame: memoryview, connection: "Connection") -> tuple[Route, RequestContext, Outcome]:
        """Decode the request and start its handler. Everything that needs no waiting is done when this returns."""
        api_key, version, correlation_id, client_id, position = parse_request_header(frame)
        route = self._routes.get((api_key, version))
        if route is None:
            route = self._add_route(api_key, version)
        context = RequestContext(self._services, connection, route.version, correlation_id, client_id)
        return route, context, route.start(frame, position, context)

    def _add_route(self, api_key: int, version: int) -> Route:
        route = self._routes[api_key, version] = self._find_route(api_key, version)
        times = self._services.request_times
        if route.api_key == FETCH:
            route.times = times.of(FETCH_CONSUMER, route.version)
            route.follower_times = times.of(FETCH_FOLLOWER, route.version)
        else:
            route.times = route.follower_times = times.of(route.name, route.version)
        return route

    def _find_route(self, api_key: int, version: int) -> Route:
        api = API_KEYS.get(api_key)
        if api is not None and version in api.versions:
            return Route(api_key, version)
        if api_key == API_VERSIONS_KEY:
            return UnsupportedApiVersionsRoute(api_key, 0)
        raise UnsupportedRequest(f"api key {api_key} version {version} is not supported by this broker")
