"""Tidelog for Spark: the data source `format("tidelog")`, and a Spark session with suitable settings."""

from typing import TYPE_CHECKING

__all__ = ["session"]

if TYPE_CHECKING:
    from tidelog.spark.spark_session import session


def __getattr__(name: str) -> object:
    """Lazy `from tidelog.spark import session`: Spark imports this package in every process, so it must stay light."""
    if name == "session":
        from tidelog.spark.spark_session import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
