"""Scripted answers to requests: `kafka.on("Produce", topic="t").fail("NOT_ENOUGH_REPLICAS", times=2)`."""

from collections.abc import Callable
from typing import Any

from tidelog.testing.error_answers import error_named
from tidelog.testing.request_script import ActionKind, ErrorFunction, RequestFilter


class Rule:
    """A rule in force, until it is used up, removed, or the cluster is reset. As a context manager: until its end."""

    def __init__(self, call: Callable[..., Any], rule_id: int) -> None:
        self._call = call
        self._rule_id = rule_id

    @property
    def hits(self) -> int:
        """Requests that it has met."""
        hits: int = self._call("script.hits", self._rule_id)
        return hits

    def remove(self) -> None:
        self._call("script.remove", self._rule_id)

    def __enter__(self) -> "Rule":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class OnRequest:
    """What to do with the requests of a filter. Of several rules that match, the latest counts."""

    def __init__(self, call: Callable[..., Any], wanted: RequestFilter) -> None:
        self._call = call
        self._wanted = wanted

    def fail(self, error: "str | int | ErrorFunction", *, times: int | None = None) -> Rule:
        """Answer with this error, and do nothing of what the request asks for.

        `error`: Kafka's name or code, or a function that gets the request and returns one, or None to serve it.
        `times`: so often; without it always. Only what the filter names fails: other topics of a request are served.
        """
        if not callable(error):
            error_named(error)
        return self._add("fail", error=error, times=times)

    def delay(self, seconds: float, *, times: int | None = None) -> Rule:
        """Delay the request, and those after it on its connection, by this time."""
        return self._add("delay", delay_s=seconds, times=times)

    def drop(self, *, times: int | None = None) -> Rule:
        """Neither serve nor answer the request: the client runs into its time-out."""
        return self._add("drop", times=times)

    def disconnect(self, *, times: int | None = None) -> Rule:
        """Close the connection instead of serving the request."""
        return self._add("disconnect", times=times)

    def lose_answer(self, *, times: int | None = None) -> Rule:
        """Serve the request, then close the connection instead of answering: the client cannot know it was done."""
        return self._add("lose_answer", times=times)

    def _add(self, kind: ActionKind, **options: Any) -> Rule:
        return Rule(self._call, self._call("script.add", self._wanted, kind, **options))
