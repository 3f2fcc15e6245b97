"""The shop of the tour."""

import json
from collections import Counter
from decimal import Decimal

from demo.checks import Totals
from demo.events import DAMAGES, PRODUCTS, WHOLESALER, Shop
from demo.following import Progress, progress_of
from demo.reading import different_events, latest_totals
from tidelog.client.consumer.consumer import ConsumedRecord

FIELDS = {"order_id", "customer", "product", "quantity", "price", "at"}


def test_same_seed_gives_the_same_orders_with_ids_in_order() -> None:
    first, second = ([shop.next_event(0.0) for _ in range(500)] for shop in (Shop(1), Shop(1)))
    assert first == second
    assert [event.order_id for event in first] == list(range(1, 501))


def test_good_orders_have_every_field_and_malformed_ones_are_few() -> None:
    shop = Shop(1)
    events = [shop.next_event(1_790_000_000.0) for _ in range(4_000)]
    good = [json.loads(event.value) for event in events if not event.is_malformed]
    assert all(order.keys() == FIELDS for order in good)
    assert {order["product"] for order in good} == {product.name for product in PRODUCTS}
    assert 5 <= len(events) - len(good) <= 50
    assert Counter(event.key for event in events).most_common(1)[0][0] == WHOLESALER.encode()


def test_every_damage_makes_an_order_that_its_schema_does_not_take() -> None:
    order = json.loads(Shop(1).next_event(0.0).value)
    for damage in DAMAGES:
        try:
            left = json.loads(damage(order))
        except ValueError:
            continue
        assert "order_id" not in left or not isinstance(left["quantity"], int)


def test_last_totals_of_a_product_count() -> None:
    def written(orders: int, revenue: str) -> ConsumedRecord:
        value = f'{{"product":"teapot","orders":{orders},"pieces":{orders},"revenue":{revenue}}}'
        return ConsumedRecord("orders.totals", 0, orders, 0, b"teapot", value.encode())

    assert latest_totals([written(1, "27.25"), written(2, "54.50")]) == {"teapot": Totals(2, 2, Decimal("54.50"))}


def test_dead_letter_that_was_written_twice_counts_once() -> None:
    def letter(offset: int, of: bytes) -> ConsumedRecord:
        headers = (("tidelog.topic", b"orders"), ("tidelog.partition", b"0"), ("tidelog.offset", of))
        return ConsumedRecord("orders.dead", 0, offset, 0, None, b"", headers)

    assert len(different_events([letter(0, b"17"), letter(1, b"17"), letter(2, b"18")])) == 2


def test_progress_is_that_of_the_query_furthest_behind() -> None:
    lags = [{"topic": "orders", "partition": number, "position": 40, "lag": 0} for number in range(2)]
    behind = [{"topic": "orders", "partition": 0, "position": 30, "lag": 10}]
    written = {
        "dead_letters": 3,
        "queries": [{"name": "table", "rows_out": 77, "lags": lags}, {"name": "totals", "rows_out": 7, "lags": behind}],
    }
    progress = progress_of(written, "table", "orders")
    assert progress == Progress(77, 3, {"table": 80, "totals": 30})
    assert progress.unread(80) == 50
    assert Progress().unread(80) == 80
