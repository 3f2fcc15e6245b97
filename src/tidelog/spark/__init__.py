"""Tidelog for Spark: `format("tidelog")`, found without registration, and a session with the settings that matter."""

from typing import TYPE_CHECKING

__all__ = ["session"]

if TYPE_CHECKING:
    from tidelog.spark.spark_session import session


def __getattr__(name: str) -> object:
    """`from tidelog.spark import session`; Spark imports this package in every process, so it stays light."""
    if name == "session":
        from tidelog.spark.spark_session import session

        return session
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
