"""The outcomes of handlers: a response, none (the client wants no answer), or one of these later."""

from collections.abc import Coroutine
from typing import Any, TypeAlias

from tidelog.protocol.structs import Response
from tidelog.runtime.deferred import Deferred

Outcome: TypeAlias = Response | Deferred[Any] | None

HandlerOutcome: TypeAlias = Outcome | Coroutine[Any, Any, Response | None]
"""What handlers may return. `Route.start` runs a coroutine as a task; everybody else knows Deferred only."""
