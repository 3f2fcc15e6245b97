import pytest

from tidelog.cluster.topic_names import check_topic_name, collides, colliding_topics, is_internal
from tidelog.errors import InvalidTopic


@pytest.mark.parametrize("name", ["a", "A.b_c-1", "x" * 249, "...", "__consumer_offsets"])
def test_a_legal_name_is_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a b", "contains one or more characters other than ASCII alphanumerics"),
        ("a/b", "contains one or more characters other than ASCII alphanumerics"),
        ("tür", "contains one or more characters other than ASCII alphanumerics"),
        ("a\n", "contains one or more characters other than ASCII alphanumerics"),
    ],
)
def test_an_illegal_name_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(InvalidTopic) as raised:
        check_topic_name(name)
    assert str(raised.value).startswith("Topic name is invalid: ")
    assert reason in str(raised.value)


def test_dot_and_underscore_collide() -> None:
    assert collides("a.b", "a_b")
    assert not collides("a.b", "a-b")
    assert colliding_topics("a.b", ["a_b", "a-b", "c"]) == ["a_b"]
    assert colliding_topics("ab", ["ab"]) == []


def test_kafkas_own_topics_are_internal() -> None:
    assert is_internal("__consumer_offsets")
    assert not is_internal("__other")
