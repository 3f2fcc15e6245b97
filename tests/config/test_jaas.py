"""JAAS lines of settings: what they say, and errors that never show a secret."""

import pytest

from tidelog.config.jaas import parse_jaas
from tidelog.config.setting import BadValue

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_login_module_with_users() -> None:
    entry = parse_jaas(f'{PLAIN} required\n  username="admin" password="a;b=c \\" \\\\" user_admin=secret user_bob="";')
    assert entry.module_name == "PlainLoginModule"
    assert entry.options["password"] == 'a;b=c " \\'
    assert entry.users == {"admin": "secret", "bob": ""}


def test_comments_and_single_quotes() -> None:
    entry = parse_jaas(f"// first\n{PLAIN} /* the\nflag */ Required username='o''x' ;".replace("''", ""))
    assert entry.options == {"username": "ox"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (f'{PLAIN} required password="hunter2"', "does not end with a semicolon"),
        (f'{PLAIN} password="hunter2";', "expected one of required"),
        (f'{PLAIN} required password="hunter2;', "quotation mark is not closed"),
        (f"{PLAIN} required password=hunt=er2;", 'expected NAME="VALUE"'),
        (f"{PLAIN} required; {PLAIN} required;", "found 2"),
        (";", "class name"),
    ],
)
def test_mistakes_are_named_without_secrets(text: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason) as refused:
        parse_jaas(text)
    assert "hunt" not in str(refused.value)


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required password="hunter2";'))
