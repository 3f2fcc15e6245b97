"""What a client is told when the coordination store fails: something it knows to try again."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.errors import NotController, RequestTimedOut
from tidelog.store.interface import SessionExpired, StoreUnavailable


@contextmanager
def store_errors_for_clients() -> Iterator[None]:
    try:
        yield
    except SessionExpired as error:
        raise NotController(str(error)) from error
    except StoreUnavailable as error:
        # It may or may not have happened: exactly what a time-out means.
        raise RequestTimedOut(str(error)) from error
