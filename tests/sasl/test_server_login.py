"""The order of requests of a login: what is allowed when, and what a failure says."""

import pytest

from tidelog.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from tidelog.sasl.plain import PlainServer, plain_message
from tidelog.sasl.server_login import LoginState, Mechanism, ServerLogin

HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3
GOOD, BAD = plain_message("alice", "secret"), plain_message("alice", "wrong")
USERS = {"alice": "secret", "bob": "secret"}


def new_login(lifetime_ms: int = 0) -> ServerLogin:
    return ServerLogin(
        {"PLAIN": Mechanism(lambda: PlainServer(USERS), lifetime_ms), "OTHER": Mechanism(lambda: PlainServer(USERS))}
    )


def logged_in(lifetime_ms: int = 0) -> ServerLogin:
    login = new_login(lifetime_ms)
    assert login.on_handshake("PLAIN", 1, 0).error_code == 0
    assert login.on_token(GOOD, 0).lifetime_ms == lifetime_ms
    assert login.is_logged_in
    return login


def allowed(login: ServerLogin, now_ms: int = 0) -> set[int]:
    return {key for key in range(-1, 90) if login.refusal(key, now_ms) is None}


def test_before_the_login_only_its_own_requests_are_allowed() -> None:
    login = new_login()
    assert allowed(login) == {HANDSHAKE, VERSIONS}
    login.on_api_versions()
    assert allowed(login) == {HANDSHAKE}
    login.on_handshake("PLAIN", 1, 0)
    assert allowed(login) == {AUTHENTICATE, HANDSHAKE}
    login.on_token(GOOD, 0)
    assert METADATA in allowed(login)
    assert (login.user, login.expires_at_ms) == ("alice", None)


def test_an_unknown_mechanism_is_answered_with_the_list() -> None:
    login = new_login()
    answer = login.on_handshake("GSSAPI", 1, 0)
    assert answer == (UnsupportedSaslMechanism.code, ("PLAIN", "OTHER"))
    assert allowed(login) == set()


@pytest.mark.parametrize("is_again", [False, True])
def test_a_second_handshake_ends_the_login(is_again: bool) -> None:
    login = logged_in(60_000) if is_again else new_login()
    login.on_handshake("PLAIN", 1, 2000)
    assert login.on_handshake("PLAIN", 1, 4000) == (IllegalSaslState.code, ())
    assert not login.is_logged_in
    assert allowed(login) == set()


def test_a_failed_login_allows_nothing_more() -> None:
    login = new_login()
    login.on_handshake("PLAIN", 1, 0)
    answer = login.on_token(BAD, 0)
    assert (answer.error_code, answer.error_message) == (
        SaslAuthenticationFailed.code,
        "Authentication failed: Invalid username or password",
    )
    assert login.state is LoginState.FAILED
    assert not login.is_logged_in
    assert allowed(login) == set()


def test_reasons_that_reveal_users_are_not_sent() -> None:
    login = new_login()
    login.on_handshake("PLAIN", 1, 0)
    answer = login.on_token(b"\0\xff\0", 0)
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert "not in UTF-8" in answer.reason


def test_texts_are_those_of_kafka() -> None:
    login = new_login()
    login.on_handshake("PLAIN", 1, 0)
    message = "Invalid SASL/PLAIN response: expected 3 tokens, got 4"
    assert login.on_token(b"\0\0\0", 0).error_message == message
    login = new_login()
    login.on_handshake("PLAIN", 1, 0)
    assert login.on_token(GOOD, 0).error_message == ""


def test_after_a_handshake_of_version_0_tokens_have_no_header() -> None:
    login = new_login()
    login.on_handshake("PLAIN", 0, 0)
    assert login.state is LoginState.RAW_TOKENS
    assert allowed(login) == set()
    assert login.on_token(GOOD, 0).auth_bytes == b""
    assert login.is_logged_in


def test_there_is_no_second_login_where_sessions_do_not_expire() -> None:
    login = logged_in()
    assert login.on_handshake("PLAIN", 1, 5000).error_code == IllegalSaslState.code
    assert login.on_token(GOOD, 5000).error_code == IllegalSaslState.code
    assert login.is_logged_in


def test_an_expired_session_may_only_log_in_again() -> None:
    login = logged_in(10_000)
    assert METADATA in allowed(login, 9_999)
    assert allowed(login, 10_000) == {HANDSHAKE}
    assert login.on_handshake("PLAIN", 1, 10_000).error_code == 0
    assert allowed(login, 10_000) == {AUTHENTICATE, HANDSHAKE}
    assert login.on_token(GOOD, 10_001).lifetime_ms == 10_000
    assert METADATA in allowed(login, 20_000)


def test_not_more_than_one_re_authentication_per_second() -> None:
    login = logged_in(10_000)
    login.on_handshake("PLAIN", 1, 1)
    login.on_token(GOOD, 1)
    assert login.on_handshake("PLAIN", 1, 1000).error_code == IllegalSaslState.code
    assert login.on_handshake("PLAIN", 1, 1001).error_code == 0


@pytest.mark.parametrize(
    ("mechanism", "token", "reason"),
    [
        ("PLAIN", plain_message("bob", "secret"), "Cannot change principals during re-authentication from User.alice"),
        ("OTHER", GOOD, "SASL mechanism 'OTHER' requested by client is not supported for re-authentication"),
        ("PLAIN", BAD, "Invalid username or password"),
    ],
)
def test_a_re_authentication_changes_neither_user_nor_mechanism(mechanism: str, token: bytes, reason: str) -> None:
    login = logged_in(10_000)
    assert login.on_handshake(mechanism, 1, 5000).error_code == 0
    answer = login.on_token(token, 5000)
    assert answer.error_code == SaslAuthenticationFailed.code
    assert reason in str(answer.error_message)
    assert not login.is_logged_in
