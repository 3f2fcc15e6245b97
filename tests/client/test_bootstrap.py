"""Addresses as users write them."""

import pytest

from tidelog.client.network.bootstrap import Address, BadBootstrap, parse_bootstrap


def test_one_or_several_addresses() -> None:
    assert parse_bootstrap("localhost:9092") == [Address("localhost", 9092)]
    assert parse_bootstrap(" a:1, [::1]:2 ,a:1,") == [Address("a", 1), Address("::1", 2)]
    assert str(Address("::1", 2)) == "[::1]:2"


@pytest.mark.parametrize(
    "text", ["", ",", "localhost", "localhost:", ":9092", "a:b", "a:0", "a:65536", "::1:9092", "a b:1"]
)
def test_nonsense_is_refused_and_named(text: str) -> None:
    with pytest.raises(BadBootstrap, match="expected HOST:PORT"):
        parse_bootstrap(text)
