"""HTTP interface of the console: the page, its data as JSON, server-sent events, and changes with `--manage`."""

import json
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from tidelog.cli.pipeline_view import as_json
from tidelog.client.network.retries import reason_of
from tidelog.console.access import describe_access
from tidelog.console.changes import Changes, NotManaged
from tidelog.console.groups import Groups
from tidelog.console.messages import MAX_RECORDS, Page, Query, offsets_of, read_page, tail, volume
from tidelog.console.observer import CLIENT_ERRORS, Observer, now_ms
from tidelog.console.security import CHANGE_HEADER, HEADERS, TOKEN_COOKIE, Guard
from tidelog.console.timeline import Kind
from tidelog.console.topics import Topics
from tidelog.pipelines.running.pipeline_state import default_state_directory, list_pipelines

STATIC = Path(__file__).parent / "static"
MAX_BODY_BYTES = 2 * 1024 * 1024
MAX_TOPICS_NAMED = 200
EVENT_STREAM = "text/event-stream"

Handler = Callable[[Request], Awaitable[Response]]


class Mistake(Exception):
    """A request that cannot be answered; the message says why."""


class Guarded:
    """Refuses requests that the guard refuses, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self._guard.refusal(request.method, request.headers, _token(request))

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        answer: ASGIApp = self._app if refusal is None else PlainTextResponse(refusal.reason, refusal.status)
        await answer(scope, receive, send_with_headers)


def _token(request: Request) -> str | None:
    if "token" in request.query_params:
        return request.query_params["token"]
    cookies: SimpleCookie = SimpleCookie(request.headers.get("cookie", ""))
    return cookies[TOKEN_COOKIE].value if TOKEN_COOKIE in cookies else None


class Console:
    def __init__(self, observer: Observer, changes: Changes, guard: Guard, title: str) -> None:
        self._observer = observer
        self._cluster = observer.cluster
        self._changes = changes
        self._guard = guard
        self._title = title
        self._topics = Topics(observer)
        self._groups = Groups(observer.cluster, observer.samples)

    def app(self) -> Starlette:
        routes = [
            Route("/", self._index),
            Route("/api/about", self._json(self._about)),
            Route("/api/stream", self._stream),
            Route("/api/charts", self._json(self._charts)),
            Route("/api/topics", self._json(self._list_topics)),
            Route("/api/topics/{topic}", self._json(self._describe_topic)),
            Route("/api/topics/{topic}/messages", self._json(self._messages)),
            Route("/api/topics/{topic}/tail", self._tail),
            Route("/api/topics/{topic}/download", self._download),
            Route("/api/topics/{topic}/volume", self._json(self._volume)),
            Route("/api/partitions/{topic}/{partition:int}", self._json(self._partition)),
            Route("/api/groups", self._json(self._list_groups)),
            Route("/api/groups/lag", self._json(self._lags)),
            Route("/api/groups/{group:path}", self._json(self._describe_group)),
            Route("/api/transactions", self._json(self._transactions)),
            Route("/api/access", self._json(self._access)),
            Route("/api/pipelines", self._json(self._pipelines)),
            Route("/api/brokers/{broker:int}", self._json(self._describe_broker)),
            Route("/api/changes/{change}", self._json(self._change), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Starlette(routes=routes, middleware=[Middleware(Guarded, guard=self._guard)])

    def _json(self, work: Callable[[Request], Awaitable[object]]) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return JSONResponse(await work(request), headers={"Cache-Control": "no-store"})
            except (Mistake, NotManaged, ValueError, KeyError) as mistake:
                return JSONResponse({"error": str(mistake)}, 400)
            except CLIENT_ERRORS as error:
                return JSONResponse({"error": reason_of(error)}, 502)

        return handle

    async def _index(self, request: Request) -> Response:
        if "token" in request.query_params:  # into a cookie, so that it is in no address that is sent to a colleague
            response: Response = RedirectResponse("/", 303)
            response.set_cookie(TOKEN_COOKIE, request.query_params["token"], httponly=True, samesite="strict")
            return response
        return Response(
            (STATIC / "index.html").read_bytes(), media_type="text/html", headers={"Cache-Control": "no-cache"}
        )

    # ---- the cluster

    async def _about(self, request: Request) -> object:
        return {
            "title": self._title,
            "manage": self._guard.may_change,
            "local": self._changes.is_local,
            "change_header": CHANGE_HEADER,
        }

    async def _stream(self, request: Request) -> Response:
        return StreamingResponse(
            self._observer.stream(), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"}
        )

    async def _charts(self, request: Request) -> object:
        names = request.query_params.getlist("name")
        return {name: self._observer.samples.get(name) for name in names[:MAX_TOPICS_NAMED]}

    async def _describe_broker(self, request: Request) -> object:
        return await self._topics.describe_broker(request.path_params["broker"])

    # ---- topics and messages

    async def _list_topics(self, request: Request) -> object:
        return await self._topics.list_topics()

    async def _describe_topic(self, request: Request) -> object:
        topic = request.path_params["topic"]
        return await self._topics.describe(topic) | {"offsets": await offsets_of(self._cluster, topic)}

    async def _partition(self, request: Request) -> object:
        return await self._topics.describe_partition(request.path_params["topic"], request.path_params["partition"])

    async def _messages(self, request: Request) -> object:
        page = await read_page(self._cluster, _query(request), _cursor(request))
        return page._asdict()

    async def _tail(self, request: Request) -> Response:
        async def events() -> Any:
            try:
                async for records in tail(self._cluster, _query(request)):
                    yield f"event: records\ndata: {json.dumps(records)}\n\n"
            except CLIENT_ERRORS as error:
                yield f"event: failed\ndata: {json.dumps(reason_of(error))}\n\n"

        return StreamingResponse(events(), media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})

    async def _download(self, request: Request) -> Response:
        query, topic = _query(request), request.path_params["topic"]

        async def lines() -> Any:
            cursor: Mapping[int, int] | None = None
            page = Page([], {}, 0, False)
            while not page.is_at_end:
                page = await read_page(self._cluster, query, cursor)
                cursor = page.next_offsets
                for record in page.records:
                    yield json.dumps(record, ensure_ascii=False) + "\n"

        name = "".join(each if each.isalnum() or each in "._-" else "_" for each in topic)
        return StreamingResponse(
            lines(),
            media_type="application/x-ndjson",
            headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
        )

    async def _volume(self, request: Request) -> object:
        until = int(request.query_params.get("until", now_ms()))
        since = int(request.query_params.get("since", until - 3_600_000))
        return await volume(self._cluster, request.path_params["topic"], since, until)

    # ---- groups and transactions

    async def _list_groups(self, request: Request) -> object:
        return await self._groups.list_groups()

    async def _lags(self, request: Request) -> object:
        return await self._groups.lags(request.query_params.getlist("group"))

    async def _describe_group(self, request: Request) -> object:
        group = request.path_params["group"]
        if "reset_to" in request.query_params:
            topics = request.query_params.getlist("topic")
            return await self._groups.preview(group, request.query_params["reset_to"], topics)
        return await self._groups.describe(group)

    async def _transactions(self, request: Request) -> object:
        return await self._topics.transactions()

    async def _access(self, request: Request) -> object:
        return await describe_access(self._cluster)

    async def _pipelines(self, request: Request) -> object:
        states = list_pipelines(default_state_directory())
        return [as_json(state.name, state.present()) for state in states]

    # ---- changes

    async def _change(self, request: Request) -> object:
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            raise Mistake("the request is too large")
        wanted = json.loads(body or b"{}")
        if not isinstance(wanted, dict):
            raise Mistake("expected a JSON object")
        sentence = await self._carry_out(request.path_params["change"], wanted)
        self._observer.note(Kind.CHANGE, sentence)
        return {"done": sentence}

    async def _carry_out(self, change: str, wanted: Mapping[str, Any]) -> str:
        changes = self._changes
        match change:
            case "create-topic":
                settings = {str(key): str(value) for key, value in (wanted.get("settings") or {}).items()}
                return await changes.create_topic(
                    wanted["topic"], int(wanted.get("partitions", -1)), int(wanted.get("factor", -1)), settings
                )
            case "delete-topic":
                return await changes.delete_topic(wanted["topic"])
            case "add-partitions":
                return await changes.add_partitions(wanted["topic"], int(wanted["count"]))
            case "set":
                return await changes.alter_config(wanted["kind"], wanted["name"], wanted["key"], wanted["value"])
            case "elect":
                return await changes.elect(wanted["topic"], [int(each) for each in wanted["partitions"]])
            case "move":
                replicas = wanted["replicas"]
                return await changes.move(
                    wanted["topic"], int(wanted["partition"]), None if replicas is None else [int(r) for r in replicas]
                )
            case "produce":
                partition = wanted.get("partition")
                return await changes.produce(
                    wanted["topic"],
                    wanted.get("key"),
                    wanted.get("value"),
                    None if partition is None else int(partition),
                )
            case "reset-offsets":
                rows = await self._groups.reset(wanted["group"], wanted["to"], wanted.get("topics") or [])
                return f"Group {wanted['group']} continues from new offsets on {len(rows)} partitions."
            case "abort-transaction":
                return await changes.abort_transaction(wanted["id"])
            case "kill-broker":
                return await changes.kill_broker(int(wanted["broker"]))
            case "start-broker":
                return await changes.start_broker(int(wanted["broker"]))
        raise Mistake(f"unknown change {change}")


def _query(request: Request) -> Query:
    asked = request.query_params
    partitions = tuple(int(each) for each in asked.get("partitions", "").split(",") if each)
    start = asked.get("start", "latest")
    if start not in ("earliest", "latest") and not start.removeprefix("@").isdecimal():
        raise Mistake(f"expected earliest, latest, an offset, or @ and a time in milliseconds, found {start!r}")
    limit = min(MAX_RECORDS, max(1, int(asked.get("limit", "50"))))
    filters = [asked.get(name, "") for name in ("key", "value", "header", "path")]
    return Query(request.path_params["topic"], partitions, start, limit, *filters)


def _cursor(request: Request) -> dict[int, int] | None:
    """`0:15,1:20`: the next offset of each partition."""
    text = request.query_params.get("cursor")
    if not text:
        return None
    return {int(number): int(offset) for number, _, offset in (each.partition(":") for each in text.split(","))}
