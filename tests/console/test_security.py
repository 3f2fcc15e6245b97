"""Access to the console: who may use it, and from where."""

from typing import Any

import pytest

from tidelog.console.app import STATIC
from tidelog.console.security import CHANGE_HEADER, Guard, cookie_name, guard_of
from tidelog.console.server import ConsoleOptions
from tidelog.console.sessions import (
    IDLE_S,
    MAX_AGE_S,
    MAX_FAILURES,
    MAX_SESSIONS,
    MAX_SESSIONS_OF_USER,
    FailedLogins,
    Sessions,
)

HERE = {"host": "localhost:29080"}
READ_ONLY = Guard(frozenset({"localhost"}), None, False)
MANAGING = READ_ONLY._replace(may_change=True)


def status(
    guard: Guard, method: str, headers: dict[str, str], token: str | None = None, path: str = "/api/changes/set"
) -> int | None:
    refusal = guard.refusal(method, path, headers, token)
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


def test_the_page_itself_holds_nothing_secret_and_needs_no_token() -> None:
    guard = READ_ONLY._replace(token="right")
    assert status(guard, "GET", HERE, path="/") is None
    assert status(guard, "POST", HERE, path="/") == 405


@pytest.mark.parametrize(("site", "expected"), [("cross-site", 403), ("same-site", 403), ("same-origin", None)])
def test_other_pages_cannot_make_the_console_work(site: str, expected: int | None) -> None:
    """A page of another port of the same host is `same-site`."""
    assert status(READ_ONLY, "GET", HERE | {"sec-fetch-site": site}) == expected


def test_a_login_needs_no_manage_but_the_own_page() -> None:
    assert status(READ_ONLY, "POST", HERE | {CHANGE_HEADER: "1"}, path="/api/login") is None
    assert status(READ_ONLY, "POST", HERE, path="/api/login") == 403


def test_a_console_on_all_addresses_answers_to_addresses_and_no_foreign_name() -> None:
    guard = guard_of("0.0.0.0", None, may_change=False)
    assert status(guard, "GET", {"host": "10.1.2.3:29080"}) is None
    assert status(guard, "GET", {"host": "[fd00::1]:29080"}) is None
    assert status(guard, "GET", {"host": "evil.example:29080"}) == 421
    assert status(guard_of("127.0.0.1", None, may_change=False), "GET", {"host": "10.1.2.3"}) == 421


def test_a_proxy_in_front_is_the_own_origin() -> None:
    guard = guard_of("127.0.0.1", None, may_change=True, public_url="https://console.example")
    sent = {CHANGE_HEADER: "1", "origin": "https://console.example"}
    assert status(guard, "POST", {"host": "console.example"} | sent) is None
    assert status(guard, "POST", HERE | sent) is None
    assert status(guard, "POST", HERE | sent | {"origin": "https://console.example.evil.example"}) == 403


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, False),
        ({"host": "10.0.0.1"}, True),
        ({"public_url": "https://console.example"}, True),
        ({"has_credentials": True}, True),
    ],
)
def test_a_token_is_needed_where_others_may_come(changed: dict[str, Any], expected: bool) -> None:
    options = ConsoleOptions("127.0.0.1", 0, False, None, None)._replace(**changed)
    assert options.needs_token is expected


def test_cookies_of_two_consoles_on_one_host_differ() -> None:
    assert cookie_name(1, is_secure=False) != cookie_name(2, is_secure=False)
    assert cookie_name(1, is_secure=True).startswith("__Host-")


def test_a_session_ends_when_it_is_unused_or_old() -> None:
    sessions: Sessions[str] = Sessions()
    sessions.open("secret", "ada", "workspace", 0.0)
    assert sessions.find("guess", 1.0) is None
    assert sessions.find(None, 1.0) is None
    now_s = 0.0
    while now_s + IDLE_S < MAX_AGE_S:
        now_s += IDLE_S
        assert sessions.find("secret", now_s) is not None
    assert sessions.find("secret", MAX_AGE_S + 1) is None
    assert [each.user for each in sessions.end_expired(MAX_AGE_S + 1)] == ["ada"]


def test_of_too_many_sessions_the_least_used_ends() -> None:
    sessions: Sessions[int] = Sessions()
    for number in range(MAX_SESSIONS):
        assert sessions.open(f"s{number}", f"user {number}", number, float(number)) == []
    sessions.find("s0", 1000.0)
    assert [each.content for each in sessions.open("new", "ada", -1, 1001.0)] == [1]


def test_nobody_ends_the_sessions_of_others_by_many_of_their_own() -> None:
    sessions: Sessions[int] = Sessions()
    sessions.open("ada", "ada", -1, 0.0)
    ended = []
    for number in range(MAX_SESSIONS_OF_USER + 2):
        ended += sessions.open(f"s{number}", "bob", number, float(number))
    assert [each.content for each in ended] == [0, 1]
    assert sessions.find("ada", 20.0) is not None


def test_passwords_cannot_be_guessed_quickly() -> None:
    failures = FailedLogins()
    for number in range(MAX_FAILURES):
        assert failures.blocked_for_s("10.0.0.1", float(number)) == 0
        failures.note("10.0.0.1", float(number))
    assert failures.blocked_for_s("10.0.0.1", 10.0) == 50.0
    assert failures.blocked_for_s("10.0.0.2", 10.0) == 0
    assert failures.blocked_for_s("10.0.0.1", 61.0) == 0


def test_all_modules_are_asked_for_at_once() -> None:
    page = (STATIC / "index.html").read_text()
    assert [path.name for path in STATIC.glob("*.js") if f"/static/{path.name}" not in page] == []
