"""Gate of the console: refuses requests that the guard refuses, finds the workspace of the others."""

import json
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidelog.console.change_requests import Mistake
from tidelog.console.login import Logins
from tidelog.console.security import API, HEADERS, Guard, Refusal, cookie_name
from tidelog.console.workspace import Workspace

MAX_BODY_BYTES = 2 * 1024 * 1024
OPEN_PATHS = ("/api/about", "/api/login")
"""Answered before the login."""


class Entrance(NamedTuple):
    """How users come in: all to one workspace, or each to their own after a login."""

    guard: Guard
    port: int
    is_secure: bool
    """The page is reached by HTTPS only."""
    shared: Workspace | None
    logins: Logins | None = None

    @property
    def cookie(self) -> str:
        return cookie_name(self.port, is_secure=self.is_secure)

    @property
    def session_cookie(self) -> str:
        return f"{self.cookie}_session"

    def set_cookie(self, response: Response, name: str, secret: str) -> None:
        response.set_cookie(name, secret, httponly=True, samesite="strict", secure=self.is_secure, path="/")


class Gate:
    """Sets `user` and `workspace` of the request's state, and the security headers of every answer."""

    def __init__(self, app: ASGIApp, entrance: Entrance) -> None:
        self._app = app
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # there are no others
        request = Request(scope)
        refusal = self._refusal(request) or self._enter(request, scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        answer: ASGIApp = self._app
        if refusal is not None:
            answer = JSONResponse({"error": refusal.reason}, refusal.status, {"Cache-Control": "no-store"})
        await answer(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Refusal | None:
        token = request.query_params.get("token") or request.cookies.get(self._entrance.cookie)
        return self._entrance.guard.refusal(request.method, request.url.path, request.headers, token)

    def _enter(self, request: Request, scope: Scope) -> Refusal | None:
        entrance, state = self._entrance, scope.setdefault("state", {})
        state["user"], state["workspace"] = None, entrance.shared
        if entrance.logins is None or not request.url.path.startswith(API):
            return None
        session = entrance.logins.find(request.cookies.get(entrance.session_cookie))
        if session is not None:
            state["user"], state["workspace"] = session.user, session.content
        elif request.url.path not in OPEN_PATHS:
            return Refusal(401, "log in first")
        return None


def workspace_of(request: Request) -> Workspace:
    found: Workspace = request.state.workspace
    return found


async def body_of(request: Request) -> dict[str, Any]:
    """A JSON object. Raises Mistake. No more than the limit is read."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise Mistake("the request is too large")
    try:
        found = json.loads(bytes(body) or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Mistake("expected a JSON object")
    return found
