"""Tidelog for Spark: the data source `format("tidelog")`, exactly-once tables, and a session with suitable settings."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["session", "table", "watch"]

if TYPE_CHECKING:
    from tidelog.spark.spark_session import session

    table: Any
    watch: Any

MODULES = {
    "session": "tidelog.spark.spark_session",
    # By name only: these belong to pipelines, the layer above.
    "table": "tidelog.pipelines.tables.spark_table",
    "watch": "tidelog.pipelines.running.query_watch",
}


def __getattr__(name: str) -> object:
    """Lazy `from tidelog.spark import session`: Spark imports this package in every process, so it must stay light."""
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
