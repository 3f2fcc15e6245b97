"""A limit on TLS handshakes that nobody completes."""

from tidelog.runtime.open_handshakes import OpenHandshakes


class Peer:
    def __init__(self, host: str, open_handshakes: OpenHandshakes) -> None:
        self.peer_host = host
        self.reason = ""
        self._open = open_handshakes
        open_handshakes.add(self)

    def close(self, reason: str) -> None:
        self.reason = reason
        self._open.discard(self)


def test_the_oldest_of_the_host_with_the_most_gives_way() -> None:
    handshakes = OpenHandshakes(3)
    patient = Peer("10.0.0.1", handshakes)
    flood = [Peer("10.0.0.2", handshakes) for _ in range(5)]
    assert [each.reason for each in flood] == ["3 handshakes are open"] * 3 + ["", ""]
    assert patient.reason == ""
    assert len(handshakes) == 3


def test_complete_handshakes_do_not_count() -> None:
    handshakes = OpenHandshakes(1)
    for _ in range(3):
        peer = Peer("10.0.0.1", handshakes)
        handshakes.discard(peer)
        handshakes.discard(peer)
        assert peer.reason == ""
    assert len(handshakes) == 0
