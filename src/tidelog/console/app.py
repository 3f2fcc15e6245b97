"""HTTP interface of the console: the page, its data as JSON, server-sent events, and changes with `--manage`."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tidelog.client.network.retries import reason_of
from tidelog.console.access import describe_access
from tidelog.console.change_requests import Mistake, carry_out, text_of
from tidelog.console.changes import NotManaged
from tidelog.console.decoding import AS_IT_IS, Decoding
from tidelog.console.downloads import FORMATS, NO_PYARROW, has_parquet
from tidelog.console.gate import Entrance, Gate, body_of, workspace_of
from tidelog.console.login import TooManyFailures, WrongCredentials
from tidelog.console.messages import MAX_RECORDS, Query, offsets_of, read_all, read_page, tail, volume
from tidelog.console.observer import CLIENT_ERRORS, now_ms
from tidelog.console.pipelines import describe_pipelines
from tidelog.console.security import CHANGE_HEADER
from tidelog.console.timeline import Kind
from tidelog.console.workspace import Workspace

STATIC = Path(__file__).parent / "static"
MAX_TOPICS_NAMED = 200
MAX_FILTER_CHARACTERS = 1_000
EVENT_STREAM = "text/event-stream"

NO_STORE = {"Cache-Control": "no-store"}

Handler = Callable[[Request], Awaitable[Response]]


class Console:
    def __init__(self, entrance: Entrance, decoding: Decoding = AS_IT_IS, prometheus: str | None = None) -> None:
        self._entrance = entrance
        self._decoding = decoding
        self._prometheus = prometheus

    def app(self) -> Starlette:
        routes = [
            Route("/", self._index),
            Route("/api/about", self._json(self._about)),
            Route("/api/login", self._log_in, methods=["POST"]),
            Route("/api/logout", self._log_out, methods=["POST"]),
            Route("/api/stream", self._stream),
            Route("/api/charts", self._json(self._charts)),
            Route("/api/topics", self._json(self._list_topics)),
            Route("/api/topics/{topic}", self._json(self._describe_topic)),
            Route("/api/topics/{topic}/messages", self._json(self._messages)),
            Route("/api/topics/{topic}/tail", self._answer(self._tail)),
            Route("/api/topics/{topic}/download", self._answer(self._download)),
            Route("/api/topics/{topic}/volume", self._json(self._volume)),
            Route("/api/topics/{topic}/producers", self._json(_producers)),
            Route("/api/partitions/{topic}/{partition:int}", self._json(self._partition)),
            Route("/api/groups", self._json(self._list_groups)),
            Route("/api/groups/lag", self._json(self._lags)),
            Route("/api/groups/{group:path}", self._json(self._describe_group)),
            Route("/api/transactions", self._json(self._transactions)),
            Route("/api/transactions/hanging", self._json(_hanging_transactions)),
            Route("/api/access", self._json(self._access)),
            Route("/api/pipelines", self._json(self._pipelines)),
            Route("/api/brokers/{broker:int}", self._json(self._describe_broker)),
            Route("/api/brokers/{broker:int}/log", self._json(_broker_log)),
            Route("/api/changes/{change}", self._json(self._change), methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        return Starlette(routes=routes, middleware=[Middleware(Gate, entrance=self._entrance)])

    def _json(self, work: Callable[[Request], Awaitable[object]]) -> Handler:
        async def answer(request: Request) -> Response:
            return JSONResponse(await work(request), headers=NO_STORE)

        return self._answer(answer)

    def _answer(self, work: Handler) -> Handler:
        async def handle(request: Request) -> Response:
            try:
                return await work(request)
            except (Mistake, NotManaged, ValueError) as mistake:
                return _error(str(mistake), 400)
            except CLIENT_ERRORS as error:
                return _error(reason_of(error), 502)

        return handle

    async def _index(self, request: Request) -> Response:
        token = request.query_params.get("token")
        if token and self._entrance.guard.accepts(
            token
        ):  # into a cookie, so that it is in no address that is sent to a colleague
            response: Response = RedirectResponse("/", 303)
            self._entrance.set_cookie(response, self._entrance.cookie, token)
            return response
        return Response(
            (STATIC / "index.html").read_bytes(), media_type="text/html", headers={"Cache-Control": "no-cache"}
        )

    async def _about(self, request: Request) -> object:
        found: dict[str, object] = {"change_header": CHANGE_HEADER, "login": self._entrance.logins is not None}
        workspace: Workspace | None = request.state.workspace
        if workspace is None:
            return found
        return found | {
            "user": request.state.user,
            "title": workspace.title,
            "manage": self._entrance.guard.may_change,
            "local": workspace.changes.is_local,
            "prometheus": self._prometheus,
            "parquet": None if has_parquet() else NO_PYARROW,
        }

    # ---- login

    async def _log_in(self, request: Request) -> Response:
        logins = self._entrance.logins
        try:
            if logins is None:
                raise Mistake("this console has no login; start it with --login")
            wanted = await body_of(request)
            address = request.client.host if request.client else ""
            secret = await logins.log_in(str(wanted.get("user", "")), str(wanted.get("password", "")), address)
        except Mistake as mistake:
            return _error(str(mistake), 400)
        except WrongCredentials as wrong:
            return _error(str(wrong), 403)
        except TooManyFailures as many:
            return _error(str(many), 429)
        except CLIENT_ERRORS as error:
            return _error(reason_of(error), 502)
        response = JSONResponse({"done": True}, headers=NO_STORE)
        self._entrance.set_cookie(response, self._entrance.session_cookie, secret)
        return response

    async def _log_out(self, request: Request) -> Response:
        secret = request.cookies.get(self._entrance.session_cookie)
        if self._entrance.logins is not None and secret is not None:
            self._entrance.logins.log_out(secret)
        response = JSONResponse({"done": True}, headers=NO_STORE)
        response.delete_cookie(self._entrance.session_cookie, secure=self._entrance.is_secure, httponly=True)
        return response

    # ---- the cluster

    async def _stream(self, request: Request) -> Response:
        return StreamingResponse(workspace_of(request).observer.stream(), media_type=EVENT_STREAM, headers=NO_STORE)

    async def _charts(self, request: Request) -> object:
        names = request.query_params.getlist("name")
        return {name: workspace_of(request).observer.samples.get(name) for name in names[:MAX_TOPICS_NAMED]}

    async def _describe_broker(self, request: Request) -> object:
        return await workspace_of(request).topics.describe_broker(request.path_params["broker"])

    # ---- topics and messages

    async def _list_topics(self, request: Request) -> object:
        return await workspace_of(request).topics.list_topics()

    async def _describe_topic(self, request: Request) -> object:
        topic = request.path_params["topic"]
        return await workspace_of(request).topics.describe(topic) | {
            "offsets": await offsets_of(workspace_of(request).cluster, topic)
        }

    async def _partition(self, request: Request) -> object:
        return await workspace_of(request).topics.describe_partition(
            request.path_params["topic"], request.path_params["partition"]
        )

    async def _messages(self, request: Request) -> object:
        page = await read_page(workspace_of(request).cluster, _query(request), _cursor(request), self._decoding)
        return page._asdict()

    async def _tail(self, request: Request) -> Response:
        query, cluster = _query(request), workspace_of(request).cluster

        async def events() -> AsyncIterator[str]:
            try:
                async for records in tail(cluster, query, self._decoding):
                    yield f"event: records\ndata: {json.dumps(records)}\n\n"
            except CLIENT_ERRORS as error:
                yield f"event: failed\ndata: {json.dumps(reason_of(error))}\n\n"

        return StreamingResponse(events(), media_type=EVENT_STREAM, headers=NO_STORE)

    async def _download(self, request: Request) -> Response:
        query, cluster = _query(request), workspace_of(request).cluster
        form = FORMATS.get(request.query_params.get("format", "jsonl"))
        if form is None:
            raise Mistake(f"expected one of the formats {', '.join(FORMATS)}")
        if form is FORMATS["parquet"] and not has_parquet():
            raise Mistake(NO_PYARROW)
        # An error now is an answer; later it can only break off the download.
        (await cluster.ask_topics([query.topic])).topic(query.topic)
        content = form.write(query.topic, read_all(cluster, query, self._decoding), self._decoding)
        name = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in query.topic)
        disposition = {"Content-Disposition": f'attachment; filename="{name}.{form.suffix}"'}
        return StreamingResponse(content, media_type=form.media_type, headers=NO_STORE | disposition)

    async def _volume(self, request: Request) -> object:
        until = int(request.query_params.get("until", now_ms()))
        since = int(request.query_params.get("since", until - 3_600_000))
        return await volume(workspace_of(request).cluster, request.path_params["topic"], since, until)

    # ---- groups and transactions

    async def _list_groups(self, request: Request) -> object:
        return await workspace_of(request).groups.list_groups()

    async def _lags(self, request: Request) -> object:
        return await workspace_of(request).groups.lags(request.query_params.getlist("group"))

    async def _describe_group(self, request: Request) -> object:
        group = request.path_params["group"]
        if "reset_to" in request.query_params:
            topics = request.query_params.getlist("topic")
            return await workspace_of(request).groups.preview(group, request.query_params["reset_to"], topics)
        return await workspace_of(request).groups.describe(group)

    async def _transactions(self, request: Request) -> object:
        return await workspace_of(request).topics.transactions()

    async def _access(self, request: Request) -> object:
        return await describe_access(workspace_of(request).cluster)

    async def _pipelines(self, request: Request) -> object:
        if (
            self._entrance.logins is not None
        ):  # they are files of this machine: no permission of the cluster covers them
            raise Mistake("A console with --login shows no pipelines of its machine.")
        return await asyncio.to_thread(describe_pipelines)

    # ---- changes

    async def _change(self, request: Request) -> object:
        workspace = workspace_of(request)
        sentence = await _carry_out(workspace, request.path_params["change"], await body_of(request))
        workspace.observer.note(Kind.CHANGE, sentence)
        return {"done": sentence}


async def _producers(request: Request) -> object:
    return await workspace_of(request).topics.producers(request.path_params["topic"])


async def _hanging_transactions(request: Request) -> object:
    return await workspace_of(request).topics.hanging_transactions()


async def _broker_log(request: Request) -> object:
    return await workspace_of(request).changes.log_of_broker(request.path_params["broker"])


async def _carry_out(workspace: Workspace, change: str, wanted: Mapping[str, Any]) -> str:
    if change == "reset-offsets":
        group, topics = text_of(wanted, "group"), [str(each) for each in wanted.get("topics") or []]
        rows = await workspace.groups.reset(group, text_of(wanted, "to"), topics)
        return f"Group {group} continues from new offsets on {len(rows)} partitions."
    return await carry_out(workspace.changes, change, wanted)


def _error(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status, NO_STORE)


def _query(request: Request) -> Query:
    asked = request.query_params
    numbers = [each.strip() for each in asked.get("partitions", "").split(",") if each.strip()]
    if not all(each.isascii() and each.isdecimal() and len(each) < 10 for each in numbers):
        raise Mistake(f"expected the numbers of partitions, such as 0,2, found {asked['partitions'][:40]!r}")
    partitions = tuple(map(int, numbers))
    start = asked.get("start", "latest")
    digits = start.removeprefix("@")
    if start not in ("earliest", "latest") and not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
        raise Mistake(f"expected earliest, latest, an offset, or @ and a time in milliseconds, found {start[:40]!r}")
    limit = min(MAX_RECORDS, max(1, int(asked.get("limit", "50"))))
    filters = [asked.get(name, "") for name in ("key", "value", "header", "path")]
    if any(len(each) > MAX_FILTER_CHARACTERS for each in filters):
        raise Mistake(f"a filter has at most {MAX_FILTER_CHARACTERS} characters")
    return Query(request.path_params["topic"], partitions, start, limit, *filters)


def _cursor(request: Request) -> dict[int, int] | None:
    """`0:15,1:20`: the next offset of each partition."""
    text = request.query_params.get("cursor")
    if not text:
        return None
    return {int(number): int(offset) for number, _, offset in (each.partition(":") for each in text.split(","))}
