"""Parser for expectations of a step or sink."""

import re

from tidelog.pipelines.definition.mistakes import listed
from tidelog.pipelines.definition.model import Expectation, OnViolation, Quality
from tidelog.pipelines.definition.toml_fields import Fields

QUALITY_KEYS = ("expect", "on_violation")
EXAMPLE = "expect = { positive = 'amount > 0' }"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_quality(fields: Fields, dead_letter_topic: str | None, dead_letter_bootstrap: str) -> Quality:
    """Expectations of a step or sink. The caller has read `dead_letter_topic` from the key `dead_letters`."""
    default = fields.choice("on_violation", OnViolation, OnViolation.WARN)
    table = fields.table("expect", "expect")
    if table is None:
        if fields.has("on_violation"):
            fields.report("on_violation", f"on_violation needs expectations: {EXAMPLE}")
        return Quality()
    expectations = [_expectation(name, table, default) for name in table.names()]
    quality = Quality(tuple(found for found in expectations if found is not None))
    if not quality.has_dead_letters():
        return quality
    if dead_letter_topic is None:
        fields.report("expect", "dead letters need a topic: dead_letters = 'orders.dead'")
    return Quality(quality.expectations, dead_letter_topic, dead_letter_bootstrap)


def _expectation(name: str, table: Fields, default: OnViolation) -> Expectation | None:
    if not _NAME.fullmatch(name):
        table.report(name, f"'{name}' is not a valid name: use letters, digits and '_'")
    if isinstance(table.anything(name), dict):
        details = table.table(name, "an expectation")
        assert details is not None
        condition = details.required("condition", "'amount > 0'")
        on_violation = details.choice("on_violation", OnViolation, default)
        details.finish()
        return Expectation(name, condition, on_violation) if condition else None
    condition = table.text(name) or ""
    if condition in list(OnViolation):
        choices = listed([str(each) for each in OnViolation])
        table.report(name, f"expected a condition such as 'amount > 0'; on_violation says {choices}")
        return None
    return Expectation(name, condition, default) if condition else None
