"""CRC-32C as the package computes it, whose compiled part alone is loaded."""

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol import checksums


@given(st.binary())
def test_the_compiled_part_computes_what_the_package_does(data: bytes) -> None:
    assert checksums.crc32c(data) == package.crc32c(data)


def test_the_known_checksum_comes_from_any_kind_of_buffer() -> None:
    digits = b"123456789"
    for buffer in (digits, bytearray(digits), memoryview(digits)):
        assert checksums.crc32c(buffer) == 0xE3069283
