"""Script of a test: which requests are answered with an error, late or never, and the record of all requests."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, TypeAlias

from tidelog.errors import KafkaError
from tidelog.testing.error_answers import error_named, kafka_name
from tidelog.testing.request_parts import RecordedRequest

MAX_RECORDED = 10_000
"""Requests that are kept; older ones are forgotten."""

ActionKind: TypeAlias = Literal["fail", "delay", "drop", "disconnect", "lose_answer"]

ErrorFunction: TypeAlias = Callable[[RecordedRequest], "str | int | None"]
"""Returns the name of an error, or None if the request is served."""


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Requests of one API that match all these fields; None matches anything."""

    api: str
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    broker: int | None = None
    from_brokers: bool = False

    def matches(self, request: RecordedRequest) -> bool:
        return (
            self.api == request.api
            and self.from_brokers == (request.from_broker is not None)
            and (self.topic is None or self.topic in request.topics)
            and (self.partition is None or self._names_partition(request))
            and (self.group is None or self.group in request.groups)
            and (self.transactional_id is None or self.transactional_id in request.transactional_ids)
            and (self.client_id is None or self.client_id == request.client_id)
            and (self.broker is None or self.broker == request.broker)
        )

    def _names_partition(self, request: RecordedRequest) -> bool:
        return any(
            partition == self.partition and (self.topic is None or self.topic == topic)
            for topic, partition in request.partitions
        )

    def __str__(self) -> str:
        given = [f"{name}={getattr(self, name)!r}" for name in self.__slots__[1:] if getattr(self, name)]
        return f"on({', '.join([repr(self.api), *given])})"


@dataclass(slots=True, eq=False)
class Rule:
    """Action for requests that match a filter."""

    rule_id: int
    filter: RequestFilter
    kind: ActionKind
    error: type[KafkaError] | None = None
    choose_error: ErrorFunction | None = None
    delay_s: float = 0.0
    times: int | None = None
    """How often; None: always."""
    hits: int = 0

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and self.hits >= self.times


@dataclass(frozen=True, slots=True)
class Verdict:
    """Action for one request."""

    rule: Rule
    error: type[KafkaError] | None = None

    def __str__(self) -> str:
        if self.rule.kind == "delay":
            return f"delay {self.rule.delay_s:g} s"
        return f"fail {kafka_name(self.error)}" if self.error is not None else self.rule.kind.replace("_", " ")


class RequestScript:
    """Rules and record of one cluster."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._ids = count(1)
        self._recorded: deque[RecordedRequest] = deque(maxlen=MAX_RECORDED)
        self.mistakes: list[str] = []
        """Functions of the test that failed."""

    def clear(self) -> None:
        self._rules.clear()
        self._recorded.clear()
        self.mistakes.clear()

    # ---- rules

    def add(
        self,
        request_filter: RequestFilter,
        kind: ActionKind,
        *,
        error: str | int | ErrorFunction | None = None,
        delay_s: float = 0.0,
        times: int | None = None,
    ) -> int:
        """Later rules come first. Returns the id of the rule."""
        rule = Rule(next(self._ids), request_filter, kind, delay_s=delay_s, times=times)
        if callable(error):
            rule.choose_error = error
        elif error is not None:
            rule.error = error_named(error)
        self._rules = {rule.rule_id: rule, **self._rules}
        return rule.rule_id

    def remove(self, rule_id: int) -> None:
        self._rules.pop(rule_id, None)

    def hits(self, rule_id: int) -> int:
        rule = self._rules.get(rule_id)
        return 0 if rule is None else rule.hits

    def judge(self, request: RecordedRequest) -> Verdict | None:
        """Record the request. Returns the action for it; None: it is served."""
        verdict = next(self._verdicts(request), None)
        if verdict is not None:
            verdict.rule.hits += 1
            request = replace(request, fault=str(verdict))
        self._recorded.append(request)
        return verdict

    def _verdicts(self, request: RecordedRequest) -> Iterator[Verdict]:
        for rule in self._rules.values():
            if rule.is_used_up or not rule.filter.matches(request):
                continue
            if rule.choose_error is None:
                yield Verdict(rule, rule.error)
            else:
                error = self._chosen(rule, request)
                if error is not None:
                    yield Verdict(rule, error)

    def _chosen(self, rule: Rule, request: RecordedRequest) -> type[KafkaError] | None:
        assert rule.choose_error is not None
        try:
            name = rule.choose_error(request)
            return None if name is None else error_named(name)
        except Exception as error:  # noqa: BLE001 - raised by the next call of the test
            self.mistakes.append(f"the function of {rule.filter}.fail(...) failed: {type(error).__name__}: {error}")
            return None

    def has_rules_for(self, api: str) -> bool:
        return any(rule.filter.api == api and not rule.is_used_up for rule in self._rules.values())

    # ---- record

    def requests(self, api: str | None, *, from_brokers: bool) -> list[RecordedRequest]:
        """In the order of arrival."""
        return [
            request
            for request in self._recorded
            if api in (None, request.api) and from_brokers == (request.from_broker is not None)
        ]
