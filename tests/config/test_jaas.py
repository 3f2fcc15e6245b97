"""JAAS lines of settings: what they say, and errors that never show a secret."""

import pytest

from tidelog.config.jaas import parse_jaas, parse_jaas_file
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


FILE = """
// of a broker with ZooKeeper
KafkaServer {
  org.apache.kafka.common.security.plain.PlainLoginModule required username="a{b" user_a="};";
  org.apache.kafka.common.security.scram.ScramLoginModule required;
};
Client{
  org.apache.zookeeper.server.auth.DigestLoginModule required
  username="kafka"
  password="hun};ter2";
};
"""


def test_a_section_of_a_file() -> None:
    entry = parse_jaas_file(FILE, "Client")
    assert entry is not None
    assert entry.module_name == "DigestLoginModule"
    assert entry.options == {"username": "kafka", "password": "hun};ter2"}
    assert parse_jaas_file(FILE, "Other") is None
    with pytest.raises(BadValue, match="found 2"):
        parse_jaas_file(FILE, "KafkaServer")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('x.Module required password="hunter2";', "expected sections"),
        ('Client { x.Module required password="hunter2"; }', "does not end with };"),
        ('Client { x.Module required password="hunter2";', "expected sections"),
        ("Client { };", "found 0"),
    ],
)
def test_mistakes_in_a_file_are_named_without_secrets(text: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason) as refused:
        parse_jaas_file(text, "Client")
    assert "hunt" not in str(refused.value)


def test_braces_in_a_setting_are_a_part_of_values() -> None:
    assert parse_jaas(f"{PLAIN} required password={{x}};").options == {"password": "{x}"}
