"""Conversion of store failures into retriable Kafka errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.errors import NotController, RequestTimedOut
from tidelog.store.interface import SessionExpired, StoreUnavailable


@contextmanager
def store_errors_for_clients() -> Iterator[None]:
    """Raises NotController or RequestTimedOut instead of the error of the store."""
    try:
        yield
    except SessionExpired as error:
        raise NotController(str(error)) from error
    except StoreUnavailable as error:
        # The write may or may not have happened, which is what a timeout means.
        raise RequestTimedOut(str(error)) from error
