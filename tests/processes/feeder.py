"""Numbered records for the writer of any client, at an even pace."""

from threading import Event, Thread

from tests.clients.driver import Writer

PACE_S = 0.005


class Feeder:
    """Hands numbered records to a writer in a thread of its own until it is stopped."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._end = Event()
        self._thread = Thread(target=self._feed, name="feeder")
        self._thread.start()

    def _feed(self) -> None:
        number = 0
        while not self._end.wait(PACE_S):
            self._writer.send(b"record %d" % number)
            number += 1

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
