"""Parser for the tables [[steps]] of a pipeline file."""

import re
from dataclasses import replace

from tidelog.pipelines.definition.durations import duration_ms, positive_interval
from tidelog.pipelines.definition.model import DeduplicateStep, PythonStep, Quality, SqlStep, Step, WindowStep
from tidelog.pipelines.definition.parse_formats import PipelineContext, read_topic
from tidelog.pipelines.definition.parse_quality import read_quality
from tidelog.pipelines.definition.toml_fields import Fields

KINDS = ("sql", "python", "window", "deduplicate")
KEYS = ("from", "arguments", "group", "aggregate")
NO_DEAD_LETTERS = "dead_letters needs an expectation with on_violation = 'dead_letter'"
VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_step(fields: Fields, context: PipelineContext) -> Step | None:
    """None if the kind of step is missing."""
    view = fields.required("view", "'enriched'")
    if view and not VIEW_NAME.fullmatch(view):
        fields.report("view", f"'{view}' is not a valid view name: use letters, digits and '_'")
    step = _READERS[fields.choose(KINDS) or ""](view, fields)
    quality = _quality(fields, context)
    fields.finish(KEYS)
    return None if step is None else replace(step, quality=quality)


def _quality(fields: Fields, context: PipelineContext) -> Quality:
    dead_letters = read_topic(fields, "dead_letters")
    quality = read_quality(fields, dead_letters, context.bootstrap)
    if dead_letters and not quality.has_dead_letters():
        fields.report("dead_letters", NO_DEAD_LETTERS)
    return quality


def _unknown(view: str, fields: Fields) -> None:
    for key in KEYS:
        fields.anything(key)


def _sql(view: str, fields: Fields) -> SqlStep:
    if fields.has("from"):
        fields.report("from", "an SQL step reads the views in its SQL; remove 'from'")
        fields.anything("from")
    return SqlStep(view, fields.text("sql") or "")


def _of(fields: Fields) -> str:
    return fields.required("from", "'orders'")


def _python(view: str, fields: Fields) -> PythonStep:
    function = fields.text("python") or ""
    if function and not _FUNCTION.fullmatch(function):
        fields.report("python", f"expected MODULE:FUNCTION such as 'steps:flag', found '{function}'")
    arguments = fields.anything("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        fields.report("arguments", "expected a table { name = value }")
    return PythonStep(view, _of(fields), function, arguments if isinstance(arguments, dict) else {})


def _window(view: str, fields: Fields) -> WindowStep:
    table = fields.table("window", "a window")
    column, size, slide = _window_of(table) if table else ("", "", None)
    if not fields.has("aggregate"):
        fields.report(None, "a window needs aggregates: aggregate = { orders = 'count(*)' }")
    return WindowStep(view, _of(fields), column, size, slide, fields.texts("group"), fields.settings("aggregate"))


def _window_of(table: Fields) -> tuple[str, str, str | None]:
    column = table.required("column", "'at'")
    table.required("size", "'1 minute'")
    size = table.quantity("size", positive_interval) or ""
    slide = table.quantity("slide", positive_interval)
    if size and slide and duration_ms(slide) > duration_ms(size):
        table.report("slide", f"windows of {size} every {slide} have gaps; slide must not exceed size")
    table.finish()
    return column, size, slide


def _deduplicate(view: str, fields: Fields) -> DeduplicateStep:
    return DeduplicateStep(view, _of(fields), fields.texts("deduplicate"))


_READERS = {"": _unknown, "sql": _sql, "python": _python, "window": _window, "deduplicate": _deduplicate}
