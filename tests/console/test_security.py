"""Who may use the console, and from where."""

import pytest

from tidelog.console.security import CHANGE_HEADER, Guard

HERE = {"host": "localhost:29080"}
READ_ONLY = Guard(frozenset({"localhost"}), None, False)
MANAGING = READ_ONLY._replace(may_change=True)


def status(guard: Guard, method: str, headers: dict[str, str], token: str | None = None) -> int | None:
    refusal = guard.refusal(method, headers, token)
    return None if refusal is None else refusal.status


def test_everybody_on_loopback_may_look() -> None:
    assert status(READ_ONLY, "GET", HERE) is None


@pytest.mark.parametrize("host", ["evil.example", "evil.example:29080", "", "localhost.evil.example:29080"])
def test_a_foreign_name_that_leads_to_loopback_is_refused(host: str) -> None:
    assert status(MANAGING, "GET", {"host": host}) == 421


def test_changes_need_manage() -> None:
    assert status(READ_ONLY, "POST", HERE | {CHANGE_HEADER: "1"}) == 403


@pytest.mark.parametrize(
    "headers", [{}, {CHANGE_HEADER: "1", "origin": "http://evil.example"}, {CHANGE_HEADER: "1", "origin": "null"}]
)
def test_other_pages_cannot_forge_a_change(headers: dict[str, str]) -> None:
    assert status(MANAGING, "POST", HERE | headers) == 403


def test_the_own_page_may_change() -> None:
    assert status(MANAGING, "POST", HERE | {CHANGE_HEADER: "1", "origin": "http://localhost:29080"}) is None


@pytest.mark.parametrize(("token", "expected"), [("right", None), ("wrong", 401), (None, 401), ("", 401)])
def test_a_token_is_asked_for(token: str | None, expected: int | None) -> None:
    assert status(READ_ONLY._replace(token="right"), "GET", HERE, token) == expected
