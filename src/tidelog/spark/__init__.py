"""Tidelog for Spark: the data source `format("tidelog")`, exactly-once tables, and a session with suitable settings."""

from typing import TYPE_CHECKING

__all__ = ["session", "table", "watch"]

if TYPE_CHECKING:
    from tidelog.spark.query_watch import watch
    from tidelog.spark.spark_session import session
    from tidelog.spark.tables import table


def __getattr__(name: str) -> object:
    """Lazy `from tidelog.spark import session`: Spark imports this package in every process, so it must stay light."""
    if name == "session":
        from tidelog.spark.spark_session import session

        return session
    if name == "table":
        from tidelog.spark.tables import table

        return table
    if name == "watch":
        from tidelog.spark.query_watch import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
