"""Delivery guarantee of a sink: the option `delivery`."""

from enum import Enum

from tidelog.spark.options.values import BadValue


class Guarantee(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AUTO = "auto"
    """Exactly once if the brokers support it for any query, otherwise at least once."""


def guarantee(text: str) -> Guarantee:
    try:
        return Guarantee(text.strip().lower())
    except ValueError:
        names = ", ".join(each.value for each in Guarantee)
        raise BadValue(f"must be one of {names}, not {text!r}") from None
