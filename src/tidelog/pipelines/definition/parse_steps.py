"""The tables [[steps]] of a pipeline's file."""

import re

from tidelog.pipelines.definition.durations import duration_ms, some_time
from tidelog.pipelines.definition.model import DeduplicateStep, PythonStep, SqlStep, Step, WindowStep
from tidelog.pipelines.definition.toml_fields import Fields

KINDS = ("sql", "python", "window", "deduplicate")
KEYS = ("from", "arguments", "group", "aggregate")
VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def read_step(fields: Fields) -> Step | None:
    """None if it does not say what it is."""
    view = fields.required("view", "'enriched'")
    if view and not VIEW_NAME.fullmatch(view):
        fields.complain("view", f"'{view}' cannot be a view: SQL names have letters, digits and '_'")
    step = _READERS[fields.choose(KINDS) or ""](view, fields)
    fields.finish(KEYS)
    return step


def _unknown(view: str, fields: Fields) -> None:
    for key in KEYS:
        fields.anything(key)


def _sql(view: str, fields: Fields) -> SqlStep:
    if fields.has("from"):
        fields.complain("from", "a step of SQL names what it reads in its text; leave 'from' out")
        fields.anything("from")
    return SqlStep(view, fields.text("sql") or "")


def _of(fields: Fields) -> str:
    return fields.required("from", "'orders'")


def _python(view: str, fields: Fields) -> PythonStep:
    function = fields.text("python") or ""
    if function and not _FUNCTION.fullmatch(function):
        fields.complain("python", f"expected MODULE:FUNCTION such as 'steps:flag', found '{function}'")
    arguments = fields.anything("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        fields.complain("arguments", "expected a table { name = value }")
    return PythonStep(view, _of(fields), function, arguments if isinstance(arguments, dict) else {})


def _window(view: str, fields: Fields) -> WindowStep:
    table = fields.table("window", "a window")
    column, size, slide = _window_of(table) if table else ("", "", None)
    if not fields.has("aggregate"):
        fields.complain(None, "a window needs what to compute: aggregate = { orders = 'count(*)' }")
    return WindowStep(view, _of(fields), column, size, slide, fields.texts("group"), fields.settings("aggregate"))


def _window_of(table: Fields) -> tuple[str, str, str | None]:
    column = table.required("column", "'at'")
    table.required("size", "'1 minute'")
    size = table.quantity("size", some_time) or ""
    slide = table.quantity("slide", some_time)
    if size and slide and duration_ms(slide) > duration_ms(size):
        table.complain("slide", f"windows that begin every {slide} and last {size} leave out what is between them")
    table.finish()
    return column, size, slide


def _deduplicate(view: str, fields: Fields) -> DeduplicateStep:
    return DeduplicateStep(view, _of(fields), fields.texts("deduplicate"))


_READERS = {"": _unknown, "sql": _sql, "python": _python, "window": _window, "deduplicate": _deduplicate}
