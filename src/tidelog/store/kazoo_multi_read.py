"""Multi-read request of ZooKeeper 3.6, which reads many nodes at once and which kazoo does not have."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kazoo.exceptions import EXCEPTIONS, NoNodeError
from kazoo.protocol.states import ZnodeStat

MULTI_READ = 22
GET_DATA = 4
ERROR = -1
END = struct.pack(">i?i", -1, True, -1)
ASK_FOR_DATA = struct.pack(">i?i", GET_DATA, False, -1)
NO_WATCH = b"\x00"

_header = struct.Struct(">i?i")  # MultiHeader: type, done, error
_length = struct.Struct(">i")
_stat = struct.Struct(">qqqqiiiqiiq")


class MultiRead(NamedTuple):
    """A request in the form that kazoo sends."""

    paths: Sequence[str]

    @property
    def type(self) -> int:
        return MULTI_READ

    def serialize(self) -> bytes:
        parts = []
        for path in self.paths:
            encoded = path.encode()
            parts += [ASK_FOR_DATA, _length.pack(len(encoded)), encoded, NO_WATCH]
        return b"".join([*parts, END])

    @staticmethod
    def deserialize(response: bytes, offset: int) -> list[tuple[bytes, ZnodeStat] | None]:
        """Data and stat of each node, None if it does not exist."""
        nodes: list[tuple[bytes, ZnodeStat] | None] = []
        while True:
            kind, is_end, _ = _header.unpack_from(response, offset)
            offset += _header.size
            if is_end:
                return nodes
            (number,) = _length.unpack_from(response, offset)  # the error code, or the length of the data
            offset += _length.size
            if kind == ERROR:
                if number != NoNodeError.code:
                    raise EXCEPTIONS[number]()
                nodes.append(None)
                continue
            length = max(number, 0)  # -1 is a node without data
            data = bytes(response[offset : offset + length])
            nodes.append((data, ZnodeStat._make(_stat.unpack_from(response, offset + length))))
            offset += length + _stat.size
