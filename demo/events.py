"""The orders of a web shop as its servers would write them, a few of them malformed; a seed gives the same again."""

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

MALFORMED_SHARE = 0.005
WHOLESALE_SHARE = 0.15
WHOLESALER = "c0001"
"""One customer orders so much that a partition has more to do than the others."""
CUSTOMERS = 2_000


class Product(NamedTuple):
    name: str
    price: Decimal
    weight: int
    """How often it is ordered."""


PRODUCTS = (
    Product("espresso", Decimal("17.90"), 30),
    Product("filters", Decimal("3.45"), 25),
    Product("grinder", Decimal("89.00"), 6),
    Product("jug", Decimal("14.20"), 10),
    Product("moka", Decimal("34.50"), 8),
    Product("tea", Decimal("9.80"), 15),
    Product("teapot", Decimal("27.25"), 6),
)


class Event(NamedTuple):
    order_id: int
    key: bytes
    value: bytes
    is_malformed: bool


def _text(order: dict[str, object]) -> bytes:
    return json.dumps(order).encode()


def _cut_off(order: dict[str, object]) -> bytes:
    return _text(order)[:-20]


def _wrong_type(order: dict[str, object]) -> bytes:
    return _text(order | {"quantity": "two"})


def _without_id(order: dict[str, object]) -> bytes:
    return _text({name: value for name, value in order.items() if name != "order_id"})


def _error_page(order: dict[str, object]) -> bytes:
    return b"<html><title>502 Bad Gateway</title></html>"


DAMAGES: Sequence[Callable[[dict[str, object]], bytes]] = (_cut_off, _wrong_type, _without_id, _error_page)


class Shop:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._orders = 0

    def next_event(self, at_s: float) -> Event:
        self._orders += 1
        customer = self._customer()
        order = self._order(customer, at_s)
        is_malformed = self._random.random() < MALFORMED_SHARE
        damage = self._random.choice(DAMAGES)
        value = damage(order) if is_malformed else _text(order)
        return Event(self._orders, customer.encode(), value, is_malformed)

    def _customer(self) -> str:
        if self._random.random() < WHOLESALE_SHARE:
            return WHOLESALER
        return f"c{self._random.randrange(2, CUSTOMERS):04}"

    def _order(self, customer: str, at_s: float) -> dict[str, object]:
        (product,) = self._random.choices(PRODUCTS, [product.weight for product in PRODUCTS])
        return {
            "order_id": self._orders,
            "customer": customer,
            "product": product.name,
            "quantity": self._random.choice((1, 1, 1, 2, 2, 3, 6)),
            "price": float(product.price),
            "at": f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
