import pytest

from tidelog.protocol.errors import MalformedMessage
from tidelog.protocol.framing import frame_length, length_prefix


def test_a_frame_length_is_read_as_it_was_written() -> None:
    assert frame_length(b"ab" + length_prefix(300), 2, max_bytes=300) == 300


@pytest.mark.parametrize("prefix", [length_prefix(301), b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_frame_that_is_negative_or_too_long_is_refused(prefix: bytes) -> None:
    with pytest.raises(MalformedMessage, match="300 are allowed"):
        frame_length(prefix, 0, max_bytes=300)
